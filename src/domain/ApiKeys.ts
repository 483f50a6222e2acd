import { Context, DateTime, Effect, Layer, Option, Redacted } from "effect"
import { Digest, SecureRandom } from "effect/crypto"
import { AfterCommit } from "./AfterCommit.ts"
import type { ApiKey, CreatedApiKey, CreateOrgKey, CreateProjectKey, RateLimit, RotateKey, ValidKey } from "./ApiKey.ts"
import { defaultOverlapSeconds, isWellFormed } from "./ApiKey.ts"
import { AuditLog } from "./AuditLog.ts"
import type { OrgScope } from "./Caller.ts"
import { CurrentCaller, managedScope, requireAdministrator, requireOrg } from "./Caller.ts"
import type { Forbidden, InvalidRequest, TooManyRequests, Unavailable } from "./Errors.ts"
import { Conflict, NotFound, Unauthorized } from "./Errors.ts"
import * as FailureLimit from "./FailureLimit.ts"
import * as KeyCache from "./KeyCache.ts"
import * as KeyRateLimit from "./KeyRateLimit.ts"
import { checkExpiry, mintKey } from "./mintKey.ts"
import { OrgRepository } from "./Orgs.ts"
import type { Page } from "./Page.ts"
import { toPage } from "./Page.ts"

/** A key as it is stored: by its SHA-256, in hex. */
export interface NewApiKey {
  readonly id: string
  readonly name: string
  readonly prefix: string
  readonly hash: string
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** What takes a key's place. */
export interface KeyReplacement extends Pick<NewApiKey, "id" | "prefix" | "hash"> {
  readonly now: DateTime.Utc
  /** The new key's; `undefined`: the old key's. */
  readonly expiresAt: DateTime.Utc | null | undefined
  /** Until when the old key stays good, unless it ends before. */
  readonly oldKeyUntil: DateTime.Utc
}

/** What the lookup of a key finds. */
export interface KeyGrant extends ValidKey {
  readonly expiresAt: DateTime.Utc | null
  readonly rateLimit: RateLimit | null
}

/** Where keys are kept. */
export class ApiKeyRepository extends Context.Service<
  ApiKeyRepository,
  {
    /** Inserts a key of a project in the scope; gives the project's org. Fails when the scope has no such project. */
    readonly insertForProject: (
      scope: OrgScope,
      projectId: string,
      key: NewApiKey,
    ) => Effect.Effect<string, NotFound | Unavailable>
    /** Inserts a key of an org. Fails when there is no such org. */
    readonly insertForOrg: (orgId: string, key: NewApiKey) => Effect.Effect<void, NotFound | Unavailable>
    /** Deletes a key of the org, and tells every replica. Fails when the org has no such key. */
    readonly remove: (orgId: string, keyId: string) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Puts a new key in the place of one of the org: its name, project and rate limit are the old one's, which ends soon
     * and tells every replica so. A key that has expired by `now`, or was replaced before, is a `Conflict`.
     */
    readonly rotate: (
      orgId: string,
      keyId: string,
      replacement: KeyReplacement,
    ) => Effect.Effect<{ readonly name: string }, NotFound | Conflict | Unavailable>
    /** Up to `limit + 1` keys of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<ReadonlyArray<ApiKey>, Unavailable>
    /** The key with this SHA-256 (hex), expired or not. */
    readonly findByHash: (hash: string) => Effect.Effect<Option.Option<KeyGrant>, Unavailable>
    /** Writes when keys were last used; a time earlier than the one stored changes nothing. */
    readonly touch: (usage: ReadonlyMap<string, DateTime.Utc>) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys/ApiKeyRepository") {}

export const keyNotFound = () => new NotFound({ error: "The org has no such key." })
export const keyExpired = () => new Conflict({ error: "The key has expired: create a new one." })
export const keyReplaced = () => new Conflict({ error: "The key was rotated before: rotate the one that replaced it." })

type Refused = Unauthorized | Forbidden | Unavailable

/** How many keys that are not valid a caller without a credential may try in a minute. */
const failuresPerMinute = 600

const isoOrNull = (time: DateTime.Utc | null) => (time === null ? null : DateTime.formatIso(time))

// One value, so that no reason for refusing a key can be told from another.
const notValid = new Unauthorized({ error: "The key is not valid." })

/** API keys: made once, kept as a hash, checked on every request of a gateway. */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    readonly createForProject: (
      input: typeof CreateProjectKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | Refused, CurrentCaller>
    readonly createForOrg: (
      orgId: string,
      input: typeof CreateOrgKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | Refused, CurrentCaller>
    readonly remove: (orgId: string, keyId: string) => Effect.Effect<void, NotFound | Refused, CurrentCaller>
    /** Makes a new key in the place of one of the org, which stays good for the overlap. */
    readonly rotate: (
      orgId: string,
      keyId: string,
      input: typeof RotateKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | Conflict | Refused, CurrentCaller>
    readonly list: (
      orgId: string,
      page: Page,
    ) => Effect.Effect<
      { readonly keys: ReadonlyArray<ApiKey>; readonly nextCursor: string | null },
      NotFound | Refused,
      CurrentCaller
    >
    /** Whose key this is. Every reason for which a key is not valid fails alike. */
    readonly authenticate: (key: Redacted.Redacted<string>) => Effect.Effect<KeyGrant, Unauthorized | Unavailable>
    /**
     * `authenticate` for those who ask about a key that is not their own credential. Callers without one are limited
     * to 600 failures a minute per `address`, and a key with a rate limit to that many validations.
     */
    readonly validate: (
      key: Redacted.Redacted<string>,
      address: string,
    ) => Effect.Effect<ValidKey, Unauthorized | TooManyRequests | Unavailable, CurrentCaller>
    /** Writes down the uses since the last call; what could not be written is kept for the next. */
    readonly flushUsage: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys") {
  static readonly layer = Layer.effect(
    ApiKeys,
    Effect.gen(function* () {
      const repository = yield* ApiKeyRepository
      const orgs = yield* OrgRepository
      const random = yield* SecureRandom.SecureRandom
      const digest = yield* Digest.Digest
      const audit = yield* AuditLog
      const afterCommit = yield* AfterCommit
      const limit = FailureLimit.make(failuresPerMinute)
      const rateLimit = KeyRateLimit.make()
      const cache = yield* KeyCache.make
      const encoder = new TextEncoder()
      let usage = new Map<string, DateTime.Utc>()

      const sha256 = (key: string) => digest.digestHex(Digest.sha256, encoder.encode(key))

      const mint = mintKey(random, sha256)

      const create = Effect.fnUntraced(function* <E>(
        input: typeof CreateOrgKey.Type,
        projectId: string | null,
        insert: (key: NewApiKey) => Effect.Effect<string, E>,
      ) {
        const now = yield* DateTime.now
        yield* checkExpiry(input.expiresAt, now)
        const { key, stored } = yield* mint
        const { name, expiresAt = null, rateLimit = null } = input
        yield* audit.record(insert({ ...stored, name, createdAt: now, expiresAt, rateLimit }), (orgId) => ({
          orgId,
          action: "key.create",
          target: stored.id,
          details: { name, prefix: stored.prefix, projectId, expiresAt: isoOrNull(expiresAt), rateLimit },
        }))
        return { id: stored.id, name, prefix: stored.prefix, key }
      })

      const createForProject = Effect.fn("ApiKeys.createForProject")(function* (input: typeof CreateProjectKey.Type) {
        const scope = yield* managedScope
        const { projectId } = input
        return yield* create(input, projectId, (key) => repository.insertForProject(scope, projectId, key))
      })

      const createForOrg = Effect.fn("ApiKeys.createForOrg")(function* (
        orgId: string,
        input: typeof CreateOrgKey.Type,
      ) {
        yield* requireAdministrator
        return yield* create(input, null, (key) => Effect.as(repository.insertForOrg(orgId, key), orgId))
      })

      const remove = Effect.fn("ApiKeys.remove")(function* (orgId: string, keyId: string) {
        yield* requireOrg(orgId)
        const entry = { orgId, action: "key.delete", target: keyId, details: {} } as const
        yield* audit.record(repository.remove(orgId, keyId), () => entry)
        yield* cache.forget(keyId)
      })

      const rotate = Effect.fn("ApiKeys.rotate")(function* (
        orgId: string,
        keyId: string,
        { expiresAt, overlapSeconds = defaultOverlapSeconds }: typeof RotateKey.Type,
      ) {
        yield* requireOrg(orgId)
        const now = yield* DateTime.now
        yield* checkExpiry(expiresAt, now)
        const { key, stored } = yield* mint
        const oldKeyUntil = DateTime.add(now, { seconds: overlapSeconds })
        const replaced = repository.rotate(orgId, keyId, { ...stored, now, expiresAt, oldKeyUntil })
        const { name } = yield* audit.record(replaced, ({ name }) => ({
          orgId,
          action: "key.rotate",
          target: keyId,
          details: { name, replacedBy: stored.id, prefix: stored.prefix, overlapSeconds },
        }))
        yield* afterCommit(cache.forget(keyId))
        return { id: stored.id, name, prefix: stored.prefix, key }
      })

      const list = Effect.fn("ApiKeys.list")(function* (orgId: string, page: Page) {
        yield* requireOrg(orgId)
        const rows = yield* repository.list(orgId, page)
        if (rows.length === 0) yield* orgs.find(orgId)
        const { items, nextCursor } = toPage(rows, page.limit, (key) => key.id)
        return { keys: items, nextCursor }
      })

      const authenticate = Effect.fnUntraced(function* (secret: Redacted.Redacted<string>) {
        const key = Redacted.value(secret)
        if (!isWellFormed(key)) return yield* notValid
        const hash = yield* sha256(key)
        const found = yield* cache.through(hash, repository.findByHash(hash))
        const now = yield* DateTime.now
        if (Option.isNone(found)) return yield* notValid
        const grant = found.value
        if (grant.expiresAt !== null && !DateTime.isGreaterThan(grant.expiresAt, now)) return yield* notValid
        usage.set(grant.keyId, now)
        return grant
      })

      const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string) {
        const { caller } = yield* CurrentCaller
        const limited = caller._tag === "Anonymous"
        if (limited) yield* limit.check(address)
        const grant = yield* authenticate(key).pipe(
          Effect.tapError((error) => (limited && error._tag === "Unauthorized" ? limit.record(address) : Effect.void)),
        )
        yield* rateLimit.check(grant)
        const { keyId, orgId, projectId } = grant
        return { keyId, orgId, projectId }
      })

      const flushUsage = Effect.suspend(() => {
        if (usage.size === 0) return Effect.void
        const flushing = usage
        usage = new Map()
        // However it ends: a write that is cut short at shutdown is followed by the last flush.
        return Effect.onError(repository.touch(flushing), () =>
          Effect.sync(() => {
            for (const [keyId, at] of usage) flushing.set(keyId, at)
            usage = flushing
          }),
        )
      })

      return ApiKeys.of({ createForProject, createForOrg, remove, rotate, list, authenticate, validate, flushUsage })
    }),
  )
}
