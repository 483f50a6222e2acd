import { Context, DateTime, Effect, Layer, Redacted, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { Base64 } from "effect/encoding"
import { Cipher } from "../Cipher.ts"
import { Ed25519, seedBytes } from "../Ed25519.ts"
import type { Unavailable } from "../Errors.ts"
import { currentTenant } from "../Principal.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { version } from "../version.ts"
import type { StoredSecret } from "./DeliveryQueue.ts"
import type { EndpointAuth } from "./EndpointAuth.ts"
import type { HeaderNames } from "./WebhookEndpoint.ts"

/** The `user-agent` of every request to a receiver. */
export const userAgent = `Gatehouse/${version}`

/** HMAC-SHA256 (RFC 2104). It is a plain function because Effect's `Mac` costs eight times the digest. */
export class Hmac extends Context.Service<
  Hmac,
  {
    /** Prepares a key, and returns a function that digests messages. Text stands for its UTF-8 bytes. */
    readonly sha256: (key: string | Uint8Array) => (message: string, encoding: "hex" | "base64") => string
  }
>()("gatehouse/domain/Signature/Hmac") {}

/** The parts of an attempt that are signed. */
export interface Signable {
  readonly deliveryId: string
  /** The type of the event. */
  readonly event: string
  /** The exact request body. */
  readonly body: string
  /** The time of this attempt, in whole seconds since 1970. */
  readonly timestamp: number
  /** How the headers of Standard Webhooks are named. Default: `webhook`. */
  readonly headerNames?: typeof HeaderNames.Type
}

const prefix = "whsec_"
// With or without padding: the reference libraries accept both.
const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=?|[A-Za-z0-9+/]{2}(?:==)?)$/

/**
 * The key of `webhook-signature`. A secret of `whsec_` and base64 is the decoded base64; any other secret is its own
 * UTF-8 bytes, including one that continues after `whsec_` with something else. Never empty, because no secret is.
 */
export const standardKey = (secret: string): string | Uint8Array => {
  const rest = secret.slice(prefix.length)
  if (!secret.startsWith(prefix) || !base64.test(rest)) return secret
  return Result.getOrThrow(Base64.decode(rest.padEnd(Math.ceil(rest.length / 4) * 4, "=")))
}

/** The bytes of a new signing secret. Standard Webhooks 1.0 recommends 24 to 64. */
export const signingSecretBytes = 24
/** A signing secret of random bytes, in the format of Standard Webhooks. */
export const signingSecretOf = (bytes: Uint8Array) => `${prefix}${Base64.encode(bytes)}`

/** Makes the headers of one attempt. */
type Sign = (attempt: Signable) => Readonly<Record<string, string>>

/** Signs webhooks. */
export class Signer extends Context.Service<Signer>()("gatehouse/domain/Signature/Signer", {
  make: Effect.gen(function* () {
    const { sha256 } = yield* Hmac
    const ed25519 = yield* Ed25519

    return {
      /**
       * Prepares secrets for any number of attempts: the current secret, then the previous one during its grace period.
       * `x-webhook-signature` is the hex HMAC of the body with the characters of the current secret as the key.
       * `webhook-signature` (or `svix-signature`) has one signature for each secret, and one for each Ed25519 key
       * (Standard Webhooks 1.0). No secret is a defect.
       */
      prepare: (
        secrets: ReadonlyArray<Redacted.Redacted<string>>,
        signingKeys: ReadonlyArray<Redacted.Redacted<string>> = [],
      ) =>
        Effect.sync((): Sign => {
          const [current] = secrets
          if (current === undefined) throw new Error("A delivery has no secret")
          const plain = sha256(Redacted.value(current))
          const standard = secrets.map((secret) => sha256(standardKey(Redacted.value(secret))))
          const keys = signingKeys.map((key) => ed25519.sign(Redacted.value(key)))
          return ({ body, deliveryId, event, headerNames = "webhook", timestamp }) => {
            const content = `${deliveryId}.${timestamp}.${body}`
            return {
              "content-type": "application/json",
              "user-agent": userAgent,
              "x-webhook-signature": plain(body, "hex"),
              "x-event-type": event,
              [`${headerNames}-id`]: deliveryId,
              [`${headerNames}-timestamp`]: String(timestamp),
              [`${headerNames}-signature`]: [
                ...standard.map((digest) => `v1,${digest(content, "base64")}`),
                ...keys.map((sign) => `v1a,${sign(content)}`),
              ].join(" "),
            }
          }
        }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

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
const signingKeyGraceHours = 24
/** How long the previous secret of an endpoint signs beside the new one. */
export const secretGraceHours = 24

/** The prefix of a public key: Standard Webhooks 1.0. */
const publicKeyPrefix = "whpk_"

/** The Ed25519 keys of the current tenant, which sign for endpoints with `signature: "ed25519"`. */
export class SigningKeys extends Context.Service<SigningKeys>()("gatehouse/domain/webhooks/SigningKeys", {
  make: Effect.gen(function* () {
    const repository = yield* SigningKeyRepository
    const ed25519 = yield* Ed25519
    const cipher = yield* Cipher
    const audit = yield* AuditLog
    const random = yield* SecureRandom.SecureRandom

    const make = Effect.fnUntraced(function* (orgId: string) {
      const { privateKey, publicKey } = ed25519.keyPair(yield* random.randomBytes(seedBytes))
      return { publicKey, privateKey: yield* cipher.encrypt(Redacted.make(privateKey), orgId) }
    })
    const find = Effect.fnUntraced(function* (orgId: string) {
      return yield* repository.find(orgId, yield* DateTime.now)
    })
    const shown = Effect.map((keys: ReadonlyArray<string>) => keys.map((key) => `${publicKeyPrefix}${key}`))

    /** Makes the org's first key if it has none. */
    const ensure = Effect.gen(function* () {
      const orgId = yield* currentTenant
      if ((yield* find(orgId)).length > 0) return
      yield* repository.insert(orgId, yield* make(orgId), yield* DateTime.now)
    }).pipe(Effect.withSpan("SigningKeys.ensure"))

    return {
      ensure,

      /** The public keys, the newest first. Makes the first key if there is none. */
      list: Effect.andThen(ensure, Effect.flatMap(currentTenant, find)).pipe(shown),

      /**
       * Replaces the key. The old key signs beside the new one for 24 hours. Returns the public keys, the newest first.
       */
      rotate: Effect.gen(function* () {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const previousUntil = DateTime.add(now, { hours: signingKeyGraceHours })
        const key = yield* make(orgId)
        const details = { publicKey: `${publicKeyPrefix}${key.publicKey}` }
        const entry = yield* audit.entry({ action: "signing_key.rotate", target: orgId, details })
        yield* repository.rotate(orgId, key, previousUntil, now, entry)
        return yield* find(orgId)
      }).pipe(shown, Effect.withSpan("SigningKeys.rotate")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** What the requests to a receiver are made with, encrypted. */
interface StoredSigning {
  readonly secrets: ReadonlyArray<StoredSecret>
  readonly signingKeys: ReadonlyArray<StoredSecret>
  readonly headers: StoredSecret | null
  readonly auth: StoredSecret | null
}

/** What the requests to a receiver are made with. */
export interface Signing {
  readonly sign: Sign
  readonly auth: Redacted.Redacted<EndpointAuth> | undefined
}

/** Decrypts the secrets, keys, extra headers and authorization of a receiver. */
export const prepareSign = Effect.fnUntraced(function* (
  cipher: Cipher["Service"],
  signer: Signer["Service"],
  { auth, headers, secrets, signingKeys }: StoredSigning,
) {
  const decrypt = ({ stored, owner }: StoredSecret) => cipher.decrypt(stored, owner)
  const json = (stored: StoredSecret) =>
    Effect.map(decrypt(stored), (text) => JSON.parse(Redacted.value(text)) as unknown)
  const sign = yield* signer.prepare(
    yield* Effect.forEach(secrets, decrypt),
    yield* Effect.forEach(signingKeys, decrypt),
  )
  const authorization = auth === null ? undefined : Redacted.make((yield* json(auth)) as EndpointAuth)
  if (headers === null) return { sign, auth: authorization } satisfies Signing
  const extra = (yield* json(headers)) as Readonly<Record<string, string>>
  // The service's own headers last: an extra header never replaces one of them.
  const signWithExtra: Sign = (attempt) => ({ ...extra, ...sign(attempt) })
  return { sign: signWithExtra, auth: authorization } satisfies Signing
})
