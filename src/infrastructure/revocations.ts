// What replicas tell each other of keys, in the transaction that changes them.

/**
 * The channel of revocations. The payload is the key's id; or `org:<id>` or `project:<id of the org>:<id>`, when all
 * keys of one are revoked; or `roles:<id of the org>`, when a role was changed; or `imported`.
 */
export const revocationChannel = "gatehouse_key_deleted"

/** The payload when all keys of an org, or of one of its projects, are revoked. */
export const ownerDeleted = (orgId: string, projectId?: string) =>
  projectId === undefined ? `org:${orgId}` : `project:${orgId}:${projectId}`

/** The payload when keys were imported. */
export const keysImported = "imported"

/** The payload when a role of an org was changed. */
export const rolesChanged = (orgId: string) => `roles:${orgId}`
