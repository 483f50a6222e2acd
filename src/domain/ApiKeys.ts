import { Clock, Context, DateTime, Effect, Exit, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import type { ApiKey, CreatedApiKey, CreateOrgKey, CreateProjectKey, ValidKey } from "./ApiKey.ts"
import { displayPrefix, fromRandomBytes, isWellFormed } from "./ApiKey.ts"
import type { OrgScope } from "./Caller.ts"
import { CurrentCaller, managedScope, requireAdministrator, requireOrg } from "./Caller.ts"
import type { Forbidden, NotFound, TooManyRequests, Unavailable } from "./Errors.ts"
import { InvalidRequest, Unauthorized } from "./Errors.ts"
import * as FailureLimit from "./FailureLimit.ts"
import * as KeyCache from "./KeyCache.ts"
import { KeyHash } from "./KeyHash.ts"
import { OrgRepository } from "./Orgs.ts"
import type { Page } from "./Page.ts"
import { toPage } from "./Page.ts"
import { validationCounter, type ValidationSource } from "./validationMetrics.ts"

/** A key as it is stored: by its SHA-256, in hex. */
export interface NewApiKey {
  readonly id: string
  readonly name: string
  readonly prefix: string
  readonly hash: string
  readonly createdAt: DateTime.Utc
  readonly expiresAt: DateTime.Utc | null
}

/** What the lookup of a key finds. */
export interface KeyGrant extends ValidKey {
  readonly expiresAt: DateTime.Utc | null
}

/** What a look-up found, and where. */
interface Lookup {
  readonly grant: KeyGrant | undefined
  readonly source: ValidationSource
}

/** Where keys are kept. */
export class ApiKeyRepository extends Context.Service<
  ApiKeyRepository,
  {
    /** Inserts a key of a project in the scope. Fails when the scope has no such project. */
    readonly insertForProject: (
      scope: OrgScope,
      projectId: string,
      key: NewApiKey,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /** Inserts a key of an org. Fails when there is no such org. */
    readonly insertForOrg: (orgId: string, key: NewApiKey) => Effect.Effect<void, NotFound | Unavailable>
    /** Deletes a key of the org, and tells every replica. Fails when the org has no such key. */
    readonly remove: (orgId: string, keyId: string) => Effect.Effect<void, NotFound | Unavailable>
    /** Up to `limit + 1` keys of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<ReadonlyArray<ApiKey>, Unavailable>
    /** The keys with these SHA-256 (hex), expired or not, by their hash; those that there are. */
    readonly findByHashes: (hashes: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, KeyGrant>, Unavailable>
    /** Writes when keys were last used; a time earlier than the one stored changes nothing. */
    readonly touch: (usage: ReadonlyMap<string, DateTime.Utc>) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys/ApiKeyRepository") {}

type Refused = Unauthorized | Forbidden | Unavailable

/** How many keys that are not valid a caller without a credential may try in a minute. */
const failuresPerMinute = 600

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
     * to 600 failures a minute per `address`.
     */
    readonly validate: (
      key: Redacted.Redacted<string>,
      address: string,
    ) => Effect.Effect<ValidKey, Unauthorized | TooManyRequests | Unavailable, CurrentCaller>
    /**
     * `authenticate` without a fiber, for the one caller that cannot afford one: `done` gets the valid key, or
     * `undefined` when `authenticate` has to say why there is none. From memory it is called at once.
     */
    readonly recognize: (key: string, done: (grant: ValidKey | undefined, source: ValidationSource) => void) => void
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
      const hashOf = yield* KeyHash
      const clock = yield* Clock.Clock
      const count = yield* validationCounter
      const limit = FailureLimit.make(failuresPerMinute)
      const cache = yield* KeyCache.make(repository.findByHashes)
      /** When keys were last used, in milliseconds. */
      let usage = new Map<string, number>()

      const generate: Effect.Effect<string> = Effect.flatMap(random.randomBytes(48), (bytes) => {
        const key = fromRandomBytes(bytes)
        return key === undefined ? generate : Effect.succeed(key)
      })

      const create = Effect.fnUntraced(function* <E>(
        input: typeof CreateOrgKey.Type,
        insert: (key: NewApiKey) => Effect.Effect<void, E>,
      ) {
        const now = yield* DateTime.now
        const expiresAt = input.expiresAt ?? null
        if (expiresAt !== null && !DateTime.isGreaterThan(expiresAt, now)) {
          return yield* new InvalidRequest({ error: "expiresAt must be a time in the future." })
        }
        const key = yield* generate
        const { name } = input
        const stored = { id: yield* random.ulid, name, prefix: displayPrefix(key), hash: hashOf(key) }
        yield* insert({ ...stored, createdAt: now, expiresAt })
        return { id: stored.id, name, prefix: stored.prefix, key }
      })

      const createForProject = Effect.fn("ApiKeys.createForProject")(function* (input: typeof CreateProjectKey.Type) {
        const scope = yield* managedScope
        return yield* create(input, (key) => repository.insertForProject(scope, input.projectId, key))
      })

      const createForOrg = Effect.fn("ApiKeys.createForOrg")(function* (
        orgId: string,
        input: typeof CreateOrgKey.Type,
      ) {
        yield* requireAdministrator
        return yield* create(input, (key) => repository.insertForOrg(orgId, key))
      })

      const remove = Effect.fn("ApiKeys.remove")(function* (orgId: string, keyId: string) {
        yield* requireOrg(orgId)
        yield* repository.remove(orgId, keyId)
        yield* cache.forget(keyId)
      })

      const list = Effect.fn("ApiKeys.list")(function* (orgId: string, page: Page) {
        yield* requireOrg(orgId)
        const rows = yield* repository.list(orgId, page)
        if (rows.length === 0) yield* orgs.find(orgId)
        const { items, nextCursor } = toPage(rows, page.limit, (key) => key.id)
        return { keys: items, nextCursor }
      })

      /** The grant, its use written down, unless it has expired. */
      const accept = (grant: KeyGrant | undefined) => {
        const now = clock.currentTimeMillisUnsafe()
        if (grant === undefined || (grant.expiresAt !== null && grant.expiresAt.epochMilliseconds <= now))
          return undefined
        usage.set(grant.keyId, now)
        return grant
      }

      const recognize = (key: string, done: (grant: KeyGrant | undefined, source: ValidationSource) => void) => {
        if (!isWellFormed(key)) return done(undefined, "memory")
        const hash = hashOf(key)
        const held = cache.held(hash)
        if (held !== undefined) return done(accept(held), "memory")
        cache.lookUp(hash, (found) => done(Exit.isSuccess(found) ? accept(found.value) : undefined, "database"))
      }

      const find = (key: string): Effect.Effect<Lookup, Unavailable> => {
        if (!isWellFormed(key)) return Effect.succeed({ grant: undefined, source: "memory" })
        const hash = hashOf(key)
        const grant = cache.held(hash)
        if (grant !== undefined) return Effect.succeed({ grant, source: "memory" })
        return Effect.callback((resume) =>
          cache.lookUp(hash, (found) => resume(Exit.map(found, (grant) => ({ grant, source: "database" })))),
        )
      }

      const authenticate = (key: Redacted.Redacted<string>) =>
        Effect.flatMap(find(Redacted.value(key)), (found) => {
          const grant = accept(found.grant)
          return grant === undefined ? Effect.fail(notValid) : Effect.succeed(grant)
        })

      const validate = Effect.fnUntraced(function* (key: Redacted.Redacted<string>, address: string) {
        const { caller } = yield* CurrentCaller
        const limited = caller._tag === "Anonymous"
        if (limited) {
          yield* Effect.tapError(limit.check(address), () => Effect.sync(() => count("limited", "memory")))
        }
        const found = yield* Effect.tapError(find(Redacted.value(key)), () =>
          Effect.sync(() => count("unavailable", "database")),
        )
        const grant = accept(found.grant)
        count(grant === undefined ? "invalid" : "valid", found.source)
        if (grant === undefined) {
          if (limited) yield* limit.record(address)
          return yield* notValid
        }
        const { keyId, orgId, projectId } = grant
        return { keyId, orgId, projectId }
      })

      const flushUsage = Effect.suspend(() => {
        if (usage.size === 0) return Effect.void
        const flushing = usage
        usage = new Map()
        const times = new Map(Array.from(flushing, ([keyId, at]) => [keyId, DateTime.makeUnsafe(at)]))
        // However it ends: a write that is cut short at shutdown is followed by the last flush.
        return Effect.onError(repository.touch(times), () =>
          Effect.sync(() => {
            for (const [keyId, at] of usage) flushing.set(keyId, at)
            usage = flushing
          }),
        )
      })

      return ApiKeys.of({ createForProject, createForOrg, remove, list, authenticate, validate, recognize, flushUsage })
    }),
  )
}
