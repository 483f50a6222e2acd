import { Context, DateTime, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { Base64Url } from "effect/encoding"
import { Cipher } from "../Cipher.ts"
import type { Unavailable } from "../Errors.ts"
import { monotonicMillis } from "../monotonicMillis.ts"
import { defaultTokenSeconds, type ExchangeKey, maxTokenSeconds } from "./ApiKey.ts"
import { Ed25519, seedBytes } from "../Ed25519.ts"
import { ApiKeys } from "./ApiKeys.ts"

/** A new key begins to sign when the one before is this old. */
const rotationDays = 30
/** How long a key is published before it signs. Those who verify offline have read it by then. */
const leadMinutes = 60
/** How long replicas remember the keys. */
const rememberMillis = 60_000

/** The issuer of tokens: BASE_URL. */
export const TokenIssuer = Context.Reference("gatehouse/domain/KeyTokens/TokenIssuer", { defaultValue: () => "" })

/** A key that signs tokens. */
interface TokenKey {
  readonly id: string
  /** Its place in the order of the keys. */
  readonly n: number
  /** 32 bytes in base64. */
  readonly publicKey: string
  /** Encrypted for its id. */
  readonly privateKey: string
  readonly signsFrom: DateTime.Utc
}

export class TokenKeyRepository extends Context.Service<
  TokenKeyRepository,
  {
    /** All keys, in their order. */
    readonly list: Effect.Effect<ReadonlyArray<TokenKey>, Unavailable>
    /** Adds a key, unless another replica has added one in its place; removes keys that have ended before a time. */
    readonly add: (key: TokenKey, endedBefore: DateTime.Utc) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/KeyTokens/TokenKeyRepository") {}

const encode = (part: object) => Base64Url.encode(JSON.stringify(part))
const toUrl = (base64: string) => base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")

/** The keys that sign, and their rotation. */
const makeSigning = Effect.gen(function* () {
  const repository = yield* TokenKeyRepository
  const random = yield* SecureRandom.SecureRandom
  const cipher = yield* Cipher
  const ed25519 = yield* Ed25519
  let known: { readonly keys: ReadonlyArray<TokenKey>; readonly readAt: number } | undefined
  let prepared: { readonly id: string; readonly sign: (message: string) => string } | undefined

  const reread = Effect.gen(function* () {
    const readAt = yield* monotonicMillis
    const keys = yield* repository.list
    known = { keys, readAt }
    return keys
  })
  // The first key signs at once: that there is none is not remembered.
  const read = Effect.flatMap(monotonicMillis, (now) =>
    known !== undefined && known.keys.length > 0 && now - known.readAt < rememberMillis
      ? Effect.succeed(known.keys)
      : reread,
  )

  const addAfter = Effect.fnUntraced(function* (newest: TokenKey | undefined, now: DateTime.Utc) {
    const id = yield* random.ulid
    const { privateKey, publicKey } = ed25519.keyPair(yield* random.randomBytes(seedBytes))
    const stored = yield* cipher.encrypt(Redacted.make(privateKey), id)
    const signsFrom = newest === undefined ? now : DateTime.add(now, { minutes: leadMinutes })
    const key = { id, n: (newest?.n ?? 0) + 1, publicKey, privateKey: stored, signsFrom }
    yield* repository.add(key, DateTime.subtract(now, { seconds: maxTokenSeconds, minutes: leadMinutes }))
    return yield* reread
  })

  /** The key that signs now. Adds the next one in time. */
  const current = Effect.fnUntraced(function* (now: DateTime.Utc) {
    let keys = yield* read
    const newest = keys.at(-1)
    const isDue =
      newest === undefined || DateTime.isLessThan(DateTime.add(newest.signsFrom, { days: rotationDays }), now)
    if (isDue) {
      const added = addAfter(newest, now)
      // On a standby nothing is added, and the key goes on.
      keys = yield* newest === undefined ? added : Effect.catch(added, () => Effect.succeed(keys))
    }
    const key = keys.findLast(({ signsFrom }) => DateTime.isLessThanOrEqualTo(signsFrom, now)) ?? keys[0]!
    if (prepared?.id !== key.id) {
      const privateKey = yield* cipher.decrypt(key.privateKey, key.id)
      prepared = { id: key.id, sign: ed25519.sign(Redacted.value(privateKey)) }
    }
    return prepared
  })

  return { current, read }
})

/** Short-lived tokens for keys, which others verify without asking. */
export class KeyTokens extends Context.Service<KeyTokens>()("gatehouse/domain/KeyTokens", {
  make: Effect.gen(function* () {
    const keys = yield* ApiKeys
    const random = yield* SecureRandom.SecureRandom
    const issuer = yield* TokenIssuer
    const signing = yield* makeSigning

    return {
      /** Exchanges a key for a token. It is a use of the key, and refused as `ApiKeys.authorize`. */
      exchange: Effect.fn("KeyTokens.exchange")(function* (
        key: Redacted.Redacted<string>,
        address: string,
        { expiresInSeconds = defaultTokenSeconds, permissions }: Omit<typeof ExchangeKey.Type, "key">,
      ) {
        const { grant } = yield* keys.authorize(key, address, { permissions, clientIp: address }, "token")
        const now = yield* DateTime.now
        const { id: kid, sign } = yield* signing.current(now)
        const iat = Math.floor(now.epochMilliseconds / 1000)
        const end = grant.expiresAt === null ? Infinity : Math.floor(grant.expiresAt.epochMilliseconds / 1000)
        const exp = Math.min(iat + expiresInSeconds, end)
        const claims = {
          iss: issuer,
          sub: grant.keyId,
          jti: yield* random.ulid,
          iat,
          exp,
          org: grant.orgId,
          project: grant.projectId,
          permissions: permissions ?? grant.permissions.list,
        }
        const content = `${encode({ alg: "EdDSA", typ: "JWT", kid })}.${encode(claims)}`
        return { token: `${content}.${toUrl(sign(content))}`, expiresAt: DateTime.makeUnsafe(exp * 1000) }
      }),

      /** The public keys: those that sign, will sign, or have signed what may still be valid. */
      publicKeys: Effect.map(signing.read, (all) => ({
        keys: all.map(({ id, publicKey }) => ({
          kty: "OKP",
          crv: "Ed25519",
          alg: "EdDSA",
          use: "sig",
          kid: id,
          x: toUrl(publicKey),
        })),
      })),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
