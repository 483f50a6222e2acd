import { Effect, Layer, Stream } from "effect"
import { KeyRevocations, Revocation } from "./KeyCache.ts"
import { Notification, Notifications } from "../database/Notifications.ts"

/**
 * The channel of revocations. The payload is the key's id; or `org:<id>` or `project:<id of the org>:<id>`, when all keys of
 * one are revoked. A replica of the version before knows only the ids of keys.
 */
export const revocationChannel = "gatehouse_key_deleted"

/** The payload when all keys of an org, or of one of its projects, are revoked. */
export const ownerDeleted = (orgId: string, projectId?: string) =>
  projectId === undefined ? `org:${orgId}` : `project:${orgId}:${projectId}`

const toRevocation = (payload: string) => {
  const [kind, orgId, projectId] = payload.split(":")
  return orgId === undefined || (kind !== "org" && kind !== "project")
    ? Revocation.Revoked({ keyId: payload })
    : Revocation.OwnerDeleted({ orgId, projectId })
}

/** Revocations from the database's notifications. Each is sent in the transaction that revokes the key. */
export const layer = Layer.effect(
  KeyRevocations,
  Effect.map(Notifications, (notifications) =>
    notifications.listen(revocationChannel, { proofs: true }).pipe(
      Stream.map(
        Notification.$match({
          Up: () => Revocation.Connected(),
          Down: () => Revocation.Disconnected(),
          Message: ({ payload }) => toRevocation(payload),
          Proof: ({ sentAt }) => Revocation.Proven({ sentAt }),
        }),
      ),
    ),
  ),
)
