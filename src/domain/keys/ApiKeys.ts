import type { Redacted } from "effect"
import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { ApiKey, CreatedApiKey, CreateOrgKey, CreateProjectKey, RotateKey, ValidKey } from "./ApiKey.ts"
import { defaultOverlapSeconds } from "./ApiKey.ts"
import { ApiKeyRepository, type KeyGrant, type NewApiKey } from "./ApiKeyRepository.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import type { CurrentPrincipal } from "../Principal.ts"
import { managedScope, requireAdministrator, requireOrg } from "../Principal.ts"
import type {
  Conflict,
  Forbidden,
  InvalidRequest,
  LimitReached,
  NotFound,
  TooManyRequests,
  Unauthorized,
  Unavailable,
} from "../Errors.ts"
import * as KeyChecks from "./KeyChecks.ts"
import { KeyHash } from "./KeyHash.ts"
import { KeyLookup, type ValidationSource } from "./KeyLookup.ts"
import { checkExpiry, mintKey } from "./mintKey.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import type { Page } from "../Page.ts"
import { nextCursor } from "../Page.ts"

type Refused = Unauthorized | Forbidden | Unavailable

const isoOrNull = (time: DateTime.Utc | null) => (time === null ? null : DateTime.formatIso(time))

const makeCreate = (mint: ReturnType<typeof mintKey>, audit: AuditLog["Service"]) =>
  Effect.fnUntraced(function* <E>(
    input: typeof CreateOrgKey.Type,
    projectId: string | null,
    insert: (key: NewApiKey, entry: AuditEntry) => Effect.Effect<void, E>,
  ) {
    const now = yield* DateTime.now
    yield* checkExpiry(input.expiresAt, now)
    const { key, stored } = yield* mint
    const { name, expiresAt = null, rateLimit = null } = input
    const { id, prefix } = stored
    const details = { name, prefix, projectId, expiresAt: isoOrNull(expiresAt), rateLimit }
    const entry = yield* audit.entry({ action: "key.create", target: id, details })
    yield* insert({ ...stored, name, createdAt: now, expiresAt, rateLimit }, entry)
    return { id, name, prefix, key }
  })

/** API keys: created once, stored as a hash, validated for every request of a gateway. */
export class ApiKeys extends Context.Service<
  ApiKeys,
  {
    readonly createForProject: (
      input: typeof CreateProjectKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | LimitReached | Refused, CurrentPrincipal>
    readonly createForOrg: (
      orgId: string,
      input: typeof CreateOrgKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | LimitReached | Refused, CurrentPrincipal>
    readonly remove: (orgId: string, keyId: string) => Effect.Effect<void, NotFound | Refused, CurrentPrincipal>
    /** Replaces a key of the org by a new one. The old key stays valid during the overlap. */
    readonly rotate: (
      orgId: string,
      keyId: string,
      input: typeof RotateKey.Type,
    ) => Effect.Effect<CreatedApiKey, InvalidRequest | NotFound | Conflict | LimitReached | Refused, CurrentPrincipal>
    readonly list: (
      orgId: string,
      page: Page,
    ) => Effect.Effect<
      { readonly keys: ReadonlyArray<ApiKey>; readonly nextCursor: string | null },
      NotFound | Refused,
      CurrentPrincipal
    >
    /** Returns the owner of a valid key. The error is the same for every invalid key. */
    readonly authenticate: (key: Redacted.Redacted<string>) => Effect.Effect<KeyGrant, Unauthorized | Unavailable>
    /** `authenticate` by the SHA-256 of a key in hex, which a session has. */
    readonly authenticateHash: (hash: string) => Effect.Effect<KeyGrant, Unauthorized | Unavailable>
    /**
     * Returns the owner of a valid key that is not the caller's credential. Fails with `TooManyRequests` when the key has
     * reached its rate limit, or an anonymous caller has failed 600 times in a minute from its `address` (IPv6: from its
     * /64 network).
     */
    readonly validate: (
      key: Redacted.Redacted<string>,
      address: string,
    ) => Effect.Effect<ValidKey, Unauthorized | TooManyRequests | Unavailable, CurrentPrincipal>
    /**
     * `authenticate` without a fiber, for the hot path. Calls `done` with the owner of a valid key, or with `undefined`;
     * then `authenticate` returns the reason. Calls it synchronously when memory has the answer.
     */
    readonly recognize: (key: string, done: (grant: KeyGrant | undefined, source: ValidationSource) => void) => void
    /** Writes the uses since the last call. Uses that could not be written are written by the next call. */
    readonly flushUsage: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/ApiKeys") {
  static readonly layer = Layer.effect(
    ApiKeys,
    Effect.gen(function* () {
      const repository = yield* ApiKeyRepository
      const orgs = yield* OrgRepository
      const random = yield* SecureRandom.SecureRandom
      const audit = yield* AuditLog
      const checks = yield* KeyChecks.make
      const { forget } = yield* KeyLookup
      const mint = mintKey(random, yield* KeyHash)

      const create = makeCreate(mint, audit)

      // `Effect.fn` would take a stack trace at each call, which costs a tenth of a creation.
      const createForProject = Effect.fnUntraced(function* (input: typeof CreateProjectKey.Type) {
        const scope = yield* managedScope
        const { projectId } = input
        return yield* create(input, projectId, (key, entry) =>
          repository.insertForProject(scope, projectId, key, entry),
        )
      }, Effect.withSpan("ApiKeys.createForProject"))

      const createForOrg = Effect.fnUntraced(function* (orgId: string, input: typeof CreateOrgKey.Type) {
        yield* requireAdministrator
        return yield* create(input, null, (key, entry) => repository.insertForOrg(orgId, key, entry))
      }, Effect.withSpan("ApiKeys.createForOrg"))

      const remove = Effect.fn("ApiKeys.remove")(function* (orgId: string, keyId: string) {
        yield* requireOrg(orgId)
        yield* repository.remove(orgId, keyId, yield* audit.entry({ action: "key.delete", target: keyId, details: {} }))
        yield* forget(keyId)
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
        const { id, prefix } = stored
        const details = { replacedBy: id, prefix, overlapSeconds }
        const entry = yield* audit.entry({ action: "key.rotate", target: keyId, details })
        const replacement = { ...stored, now, expiresAt, oldKeyUntil }
        const { name } = yield* repository.rotate(orgId, keyId, replacement, entry)
        yield* forget(keyId)
        return { id, name, prefix, key }
      })

      const list = Effect.fn("ApiKeys.list")(function* (orgId: string, page: Page) {
        yield* requireOrg(orgId)
        const found = yield* repository.list(orgId, page)
        if (found.items.length === 0) yield* orgs.find(orgId)
        return { keys: found.items, nextCursor: nextCursor(found, (key) => key.id) }
      })

      return ApiKeys.of({ createForProject, createForOrg, remove, rotate, list, ...checks })
    }),
  )
}
