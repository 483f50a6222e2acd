import { Context, DateTime, Effect, Layer, Redacted } from "effect"
import { AuditLog } from "../audit/AuditLog.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { Cipher } from "../Cipher.ts"
import type { Unauthorized, Unavailable } from "../Errors.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import { Ed25519 } from "./Signature.ts"

/** A key pair of an org. The private key is encrypted for the org. */
export interface SigningKey {
  /** 32 bytes in base64. */
  readonly publicKey: string
  readonly privateKey: string
}

/** The Ed25519 keys of orgs. */
export class SigningKeyRepository extends Context.Service<
  SigningKeyRepository,
  {
    /** The public keys that sign now, the newest first; empty for an org without a key. */
    readonly find: (orgId: string, now: DateTime.Utc) => Effect.Effect<ReadonlyArray<string>, Unavailable>
    /** Stores the first key of an org. Keeps a key that the org has already. */
    readonly insert: (orgId: string, key: SigningKey, now: DateTime.Utc) => Effect.Effect<void, Unavailable>
    /** Replaces the key of an org. The old key signs beside the new one until `previousUntil`. */
    readonly rotate: (
      orgId: string,
      key: SigningKey,
      previousUntil: DateTime.Utc,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/webhooks/SigningKeys/SigningKeyRepository") {}

/** How long a replaced key also signs. */
const keyOverlapHours = 24

/** The prefix of a public key: Standard Webhooks 1.0. */
const publicKeyPrefix = "whpk_"

/** The Ed25519 keys of the current tenant, which sign for endpoints with `signature: "ed25519"`. */
export class SigningKeys extends Context.Service<
  SigningKeys,
  {
    /** Makes the org's first key if it has none. */
    readonly ensure: Effect.Effect<void, Unauthorized | Unavailable, CurrentPrincipal>
    /** The public keys, the newest first. Makes the first key if there is none. */
    readonly list: Effect.Effect<ReadonlyArray<string>, Unauthorized | Unavailable, CurrentPrincipal>
    /** Replaces the key. The old key signs beside the new one for 24 hours. Returns the public keys, the newest first. */
    readonly rotate: Effect.Effect<ReadonlyArray<string>, Unauthorized | Unavailable, CurrentPrincipal>
  }
>()("gatehouse/domain/webhooks/SigningKeys") {
  static readonly layer = Layer.effect(
    SigningKeys,
    Effect.gen(function* () {
      const repository = yield* SigningKeyRepository
      const ed25519 = yield* Ed25519
      const cipher = yield* Cipher
      const audit = yield* AuditLog

      const make = Effect.fnUntraced(function* (orgId: string) {
        const { privateKey, publicKey } = yield* ed25519.generate
        return { publicKey, privateKey: yield* cipher.encrypt(Redacted.make(privateKey), orgId) }
      })
      const find = Effect.fnUntraced(function* (orgId: string) {
        return yield* repository.find(orgId, yield* DateTime.now)
      })
      const shown = Effect.map((keys: ReadonlyArray<string>) => keys.map((key) => `${publicKeyPrefix}${key}`))

      const ensure = Effect.gen(function* () {
        const orgId = yield* currentTenant
        if ((yield* find(orgId)).length > 0) return
        yield* repository.insert(orgId, yield* make(orgId), yield* DateTime.now)
      }).pipe(Effect.withSpan("SigningKeys.ensure"))

      const list = Effect.andThen(ensure, Effect.flatMap(currentTenant, find)).pipe(shown)

      const rotate = Effect.gen(function* () {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const previousUntil = DateTime.add(now, { hours: keyOverlapHours })
        const key = yield* make(orgId)
        const details = { publicKey: `${publicKeyPrefix}${key.publicKey}` }
        const entry = yield* audit.entry({ action: "signing_key.rotate", target: orgId, details })
        yield* repository.rotate(orgId, key, previousUntil, now, entry)
        return yield* find(orgId)
      }).pipe(shown, Effect.withSpan("SigningKeys.rotate"))

      return SigningKeys.of({ ensure, list, rotate })
    }),
  )
}
