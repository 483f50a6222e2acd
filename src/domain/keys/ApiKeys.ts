import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { Forbidden, InvalidRequest, Unavailable } from "../Errors.ts"
import { nextCursor, type Page } from "../Page.ts"
import { currentHolder, managedScope, orgNotFound, OrgScope, requireAdministrator, requireKeys } from "../Principal.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import {
  type ApiKey,
  type CreateOrgKey,
  type CreateProjectKey,
  defaultGraceSeconds,
  defaultKeyPrefix,
  displayPrefix,
  fromRandomBytes,
  type RotateKey,
  type UpdateKey,
} from "./ApiKey.ts"
import { ApiKeyRepository, type KeyFilter, KeyHash, type NewApiKey, type OtherPrefix } from "./ApiKeyRepository.ts"
import * as KeyChecks from "./KeyChecks.ts"
import { bytesOf, type ImportKeys, type KeyToImport } from "./ImportKeys.ts"
import { KeyMemory } from "../KeyMemory.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import { makeRoleCheck } from "./Roles.ts"
import { defaultSettings, type HolderKeys, settingsChange, type SettingsChange } from "./KeySettings.ts"
import { PermissionSet } from "./Permission.ts"

const isoOrNull = (time: DateTime.Utc | null) => (time === null ? null : DateTime.formatIso(time))

/** Settings as the audit log has them: of metadata, which may be personal, only that it was set. */
const auditedSettings = ({ metadata, ...settings }: SettingsChange) =>
  metadata === undefined ? settings : { ...settings, metadata: metadata === null ? null : "set" }

const makeCreate = (mint: ReturnType<typeof mintKeys>, audit: AuditLog["Service"]) =>
  Effect.fnUntraced(function* <E>(
    input: typeof CreateOrgKey.Type & { readonly ofHolder?: boolean },
    owner: { readonly orgId: string } | { readonly projectId: string },
    insert: (key: NewApiKey, entry: AuditEntry) => Effect.Effect<OtherPrefix, E>,
  ) {
    const now = yield* DateTime.now
    yield* checkExpiry(input.expiresAt, now)
    const { name, expiresAt = null, rateLimit = null } = input
    const projectId = "projectId" in owner ? owner.projectId : null
    const settings = settingsChange(input)
    const credits = input.credits ?? null
    const { key, stored } = yield* mint("orgId" in owner ? owner.orgId : owner.projectId, (stored) =>
      Effect.gen(function* () {
        const { id, prefix } = stored
        const details = { name, prefix, projectId, expiresAt: isoOrNull(expiresAt), rateLimit }
        const data = { key_id: id, project_id: projectId, name, prefix, expires_at: isoOrNull(expiresAt) }
        const entry = yield* audit.entry({
          action: "key.create",
          target: id,
          details: { ...details, ...auditedSettings(settings) },
          event: { type: "key.created", data },
        })
        const fields = { ...defaultSettings, ...settings, credits, ofHolder: input.ofHolder === true }
        return { otherPrefix: yield* insert({ ...stored, name, createdAt: now, expiresAt, ...fields }, entry) }
      }),
    )
    return { id: stored.id, name, prefix: stored.prefix, key }
  })

/** API keys: created once, stored as a hash, validated for every request of a gateway. */
export class ApiKeys extends Context.Service<ApiKeys>()("gatehouse/domain/ApiKeys", {
  make: Effect.gen(function* () {
    const repository = yield* ApiKeyRepository
    const orgs = yield* OrgRepository
    const random = yield* SecureRandom.SecureRandom
    const audit = yield* AuditLog
    const checks = yield* KeyChecks.make
    const { forget, imported: noteImport } = yield* KeyMemory
    const mint = mintKeys(random, yield* KeyHash)

    const create = makeCreate(mint, audit)
    const checkRoles = yield* makeRoleCheck

    return {
      // `Effect.fn` would take a stack trace at each call, which costs a tenth of a creation.
      createForProject: Effect.fnUntraced(function* (input: typeof CreateProjectKey.Type) {
        const { projectId } = input
        const holder = yield* currentHolder
        if (holder !== undefined) {
          const scope = OrgScope.OneOrg(holder)
          return yield* create(yield* keyOfHolder(holder, input, projectId), { projectId }, (key, entry) =>
            repository.insertForProject(scope, projectId, key, entry, holder),
          )
        }
        const scope = yield* managedScope
        yield* checkRoles({ scope, projectId }, input.roles)
        return yield* create(input, { projectId }, (key, entry) =>
          repository.insertForProject(scope, projectId, key, entry),
        )
      }, Effect.withSpan("ApiKeys.createForProject")),

      createForOrg: Effect.fnUntraced(function* (orgId: string, input: typeof CreateOrgKey.Type) {
        const holder = yield* currentHolder
        if (holder !== undefined) {
          if (holder.orgId !== orgId) return yield* orgNotFound()
          return yield* create(yield* keyOfHolder(holder, input, null), { orgId }, (key, entry) =>
            repository.insertForOrg(orgId, key, entry, holder),
          )
        }
        yield* requireAdministrator
        yield* checkRoles({ orgId }, input.roles)
        return yield* create(input, { orgId }, (key, entry) => repository.insertForOrg(orgId, key, entry))
      }, Effect.withSpan("ApiKeys.createForOrg")),

      /**
       * Imports keys that were made elsewhere, by their hashes: all or none. A hash that the org has imported before
       * changes nothing. Only the administrator may do this: such keys may be weak, and a slow hash costs CPU time.
       */
      importKeys: Effect.fn("ApiKeys.importKeys")(function* (orgId: string, { dryRun = false, keys }: ImportKeys) {
        yield* requireAdministrator
        const now = yield* DateTime.now
        yield* checkRoles({ orgId }, [...new Set(keys.flatMap(({ roles }) => roles ?? []))])
        const wanted = yield* Effect.forEach(keys, (key, n) =>
          Effect.flatMap(random.ulid, (id) => importOf(key, id, n, now)),
        )
        const entry = yield* audit.entry({ action: "key.import", target: orgId, details: {} })
        const found = yield* repository.importKeys(orgId, wanted, dryRun, entry)
        if (!dryRun) yield* noteImport
        // A dry run makes none, also of a key that is twice in the request.
        const unmade = new Set(dryRun ? found.flatMap(({ id, isNew }) => (isNew ? [id] : [])) : [])
        const outcomes = found.map(({ id, isNew }, index) => ({ index, id: unmade.has(id) ? null : id, isNew }))
        return {
          imported: outcomes.flatMap(({ isNew, ...one }) => (isNew ? [one] : [])),
          existing: outcomes.flatMap(({ isNew, ...one }) => (isNew ? [] : [one])),
        }
      }),

      /** Changes a key of the org. Other replicas hear of it, or stop answering from memory. */
      update: Effect.fn("ApiKeys.update")(function* (orgId: string, keyId: string, input: UpdateKey) {
        const holder = yield* requireKeys(orgId)
        if (holder !== undefined) yield* only(["name"], input)
        const { expiresAt, name, ...asked } = input
        yield* checkExpiry(expiresAt, yield* DateTime.now)
        yield* checkRoles({ orgId }, asked.roles)
        const settings = settingsChange(asked)
        const change = { ...settings, ...withoutUndefined({ name, expiresAt }) }
        const details = {
          ...auditedSettings(settings),
          ...withoutUndefined({ name, expiresAt: expiresAt && isoOrNull(expiresAt) }),
        }
        const entry = yield* audit.entry({ action: "key.update", target: keyId, details })
        const { changed, key } = yield* repository.update(orgId, keyId, change, entry, holder)
        yield* Effect.forEach(changed, forget, { discard: true })
        return shownTo(holder)(key)
      }),

      remove: Effect.fn("ApiKeys.remove")(function* (orgId: string, keyId: string) {
        const holder = yield* requireKeys(orgId)
        const event = { type: "key.deleted", data: { key_id: keyId } } as const
        const entry = yield* audit.entry({ action: "key.delete", target: keyId, details: {}, event })
        yield* repository.remove(orgId, keyId, entry, holder)
        yield* forget(keyId)
      }),

      /** Replaces a key of the org by a new one. The old key stays valid for the grace period. */
      rotate: Effect.fn("ApiKeys.rotate")(function* (orgId: string, keyId: string, input: typeof RotateKey.Type) {
        const holder = yield* requireKeys(orgId)
        if (holder !== undefined) yield* only(["overlapSeconds"], input)
        const { expiresAt, overlapSeconds = defaultGraceSeconds, ...asked } = input
        const now = yield* DateTime.now
        yield* checkExpiry(expiresAt, now)
        yield* checkRoles({ orgId }, asked.roles)
        const oldKeyUntil = DateTime.add(now, { seconds: overlapSeconds })
        const settings = settingsChange(asked)
        const { key, made, stored } = yield* mint(orgId, (stored) =>
          Effect.gen(function* () {
            const { id, prefix } = stored
            const details = { replacedBy: id, prefix, overlapSeconds, ...auditedSettings(settings) }
            const data = {
              key_id: id,
              prefix,
              replaced_key_id: keyId,
              replaced_key_valid_until: DateTime.formatIso(oldKeyUntil),
            }
            const event = { type: "key.rotated", data } as const
            const entry = yield* audit.entry({ action: "key.rotate", target: keyId, details, event })
            const replacement = { ...stored, now, expiresAt, oldKeyUntil, settings }
            return yield* repository.rotate(orgId, keyId, replacement, entry, holder)
          }),
        )
        yield* forget(keyId)
        return { id: stored.id, name: made.name, prefix: stored.prefix, key }
      }),

      get: Effect.fn("ApiKeys.get")(function* (orgId: string, keyId: string) {
        const holder = yield* requireKeys(orgId)
        return shownTo(holder)(yield* repository.find(orgId, keyId, holder))
      }),

      /** A page of the org's keys that fit the filter. */
      list: Effect.fn("ApiKeys.list")(function* (orgId: string, { cursor, limit, ...filter }: Page & KeyFilter) {
        const holder = yield* requireKeys(orgId)
        const { externalId = filter.externalId } = holder ?? {}
        if ((filter.externalId ?? externalId) !== externalId) return { keys: [], nextCursor: null }
        const found = yield* repository.list(orgId, { cursor, limit }, { ...filter, externalId })
        if (found.items.length === 0) yield* orgs.find(orgId)
        return {
          keys: found.items.map(shownTo(holder)),
          nextCursor: nextCursor(found, (key) => key.id),
        }
      }),

      // Who has a key, and whether it may be used.
      ...checks,
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Refuses what the session of a portal may not set. What is new in a request is refused, until it is listed. */
const only = (fields: ReadonlyArray<string>, input: object) => {
  const other = Object.keys(input).find((name) => !fields.includes(name))
  return other === undefined
    ? Effect.void
    : Effect.fail(new Forbidden({ error: `A portal session may set ${fields.join(", ")} of a key, and not ${other}.` }))
}

/** The key that a holder makes, with the permissions that they ask for, else with all that they may give. */
const keyOfHolder = Effect.fnUntraced(function* (
  { externalId, permissions: allowed, projectId }: HolderKeys,
  input: typeof CreateOrgKey.Type,
  wantedProject: string | null,
) {
  yield* only(["name", "permissions", "expiresAt", "projectId"], input)
  if (wantedProject !== projectId) {
    const error =
      projectId === null
        ? "Your portal makes keys of the org: send the request to /api/v0/orgs/{orgId}/keys."
        : `Your portal makes keys of one project: send projectId ${projectId} to /api/v0/keys.`
    return yield* new Forbidden({ error })
  }
  const { expiresAt, name, permissions = allowed } = input
  const missing = new PermissionSet(allowed).missing(permissions)
  if (missing !== undefined) return yield* new Forbidden({ error: `Your keys may not have the permission ${missing}.` })
  return { name, permissions, externalId, ofHolder: true, ...(expiresAt === undefined ? {} : { expiresAt }) }
})

/** A key as its holder sees it: the metadata is the platform's. */
const shownTo =
  (holder: HolderKeys | undefined) =>
  (key: ApiKey): ApiKey =>
    holder === undefined ? key : { ...key, metadata: null }

/** The owners whose prefix a process remembers. */
const maxKnownPrefixes = 1_000
/** How often a key is made until the prefix of its owner does not change meanwhile. */
const maxMints = 3

/**
 * Makes new keys: `key` is the full key, `stored` the part that is stored, `made` what `store` returns. `store`
 * compares the prefix with that of the owner. A process begins with the one that it remembers, so that a creation needs
 * no look-up.
 */
const mintKeys = (random: SecureRandom.SecureRandom["Service"], hashOf: (key: string) => string) => {
  const known = new Map<string, string>()
  const generate = (prefix: string | undefined): Effect.Effect<string> =>
    Effect.flatMap(random.randomBytes(48), (bytes) => {
      const key = fromRandomBytes(bytes, prefix)
      return key === undefined ? generate(prefix) : Effect.succeed(key)
    })
  return Effect.fnUntraced(function* <A extends { readonly otherPrefix: OtherPrefix }, E, R>(
    owner: string,
    store: (stored: Pick<NewApiKey, "id" | "prefix" | "keyPrefix" | "hash">) => Effect.Effect<A, E, R>,
  ) {
    for (let n = 0; n < maxMints; n++) {
      const keyPrefix = known.get(owner) ?? defaultKeyPrefix
      const key = yield* generate(keyPrefix)
      const stored = { id: yield* random.ulid, prefix: displayPrefix(key), keyPrefix, hash: hashOf(key) }
      const made = yield* store(stored)
      if (made.otherPrefix === undefined) return { key, stored, made }
      if (known.size >= maxKnownPrefixes) known.clear()
      known.set(owner, made.otherPrefix)
    }
    return yield* new Unavailable({ error: "The prefix of the keys changes at this moment; try again." })
  })
}

/** An imported key as it is stored, or the fault of the key at an index. */
const importOf = (key: KeyToImport, id: string, index: number, now: DateTime.Utc) =>
  Effect.gen(function* () {
    const fault = (text: string) => new InvalidRequest({ error: `keys.${index}.${text}` })
    const { credits = null, expiresAt = null, name, projectId = null, start = "" } = key
    const bytes = bytesOf(key)
    if ("expected" in bytes) return yield* fault(`hash must be ${bytes.expected}.`)
    if (bytes.isSlow && start === "") {
      return yield* fault(`start is needed for ${key.algorithm}: the first 4 to 16 characters of the key.`)
    }
    if (expiresAt !== null && !DateTime.isGreaterThan(expiresAt, now)) {
      return yield* fault("expiresAt must be a time in the future.")
    }
    const stored = { hash: bytes.hex, importStart: bytes.isSlow ? start : null, keyPrefix: "" }
    const settings = { ...defaultSettings, ...settingsChange(key), credits }
    return { id, name, prefix: start, projectId, createdAt: now, expiresAt, ...stored, ...settings }
  })

/** Refuses an expiry that is not in the future. No expiry is valid. */
const checkExpiry = (expiresAt: DateTime.Utc | null | undefined, now: DateTime.Utc) =>
  expiresAt == null || DateTime.isGreaterThan(expiresAt, now)
    ? Effect.void
    : Effect.fail(new InvalidRequest({ error: "expiresAt must be a time in the future." }))
