import { Clock, Effect, Option } from "effect"
import { base64url, type CryptoKey, decodeProtectedHeader, errors, jwtVerify, type JWTPayload } from "jose"
import { Unauthorized, Unavailable } from "../../domain/Errors.ts"
import type { KeysUnavailable } from "../net/PublishedKeys.ts"

/** Whose tokens are accepted, and for whom. */
interface TrustedIssuer {
  readonly issuer: string
  readonly audiences: ReadonlyArray<string>
  readonly algorithms: ReadonlyArray<string>
  readonly keys: {
    readonly find: (
      kid: string,
      algorithm: string,
    ) => Effect.Effect<Option.Option<ReadonlyArray<CryptoKey>>, KeysUnavailable>
  }
}

/** Limit of a token's length in characters; GitHub's have about 2 KiB. */
const maxTokenLength = 16 * 1024
/** Tolerated difference between the provider's clock and ours. */
export const maxClockSkewSeconds = 30
/** Header parameters that would let a token choose its own key, or that need unsupported semantics (RFC 8725, 3.10). */
const refusedParameters = ["jwk", "jku", "x5c", "x5u", "crit", "b64", "zip"]

export const reject = (error: string) => Effect.fail(new Unauthorized({ error }))

/** Whether the text is canonical base64url without padding. Only one spelling of a token is accepted. */
const isBase64url = (part: string) => {
  try {
    return part !== "" && base64url.encode(base64url.decode(part)) === part
  } catch {
    return false
  }
}

/** Checks the format of a compact JWT (RFC 7515) before anything else is read. */
export const checkFormat = Effect.fnUntraced(function* (token: string): Effect.fn.Return<void, Unauthorized> {
  if (token.length > maxTokenLength) return yield* reject(`The token is longer than ${maxTokenLength} characters.`)
  const parts = token.split(".")
  if (parts.length === 5) return yield* reject("The token is encrypted, but it must be signed.")
  if (parts.length !== 3) return yield* reject("The token is not a JWT: it must have three parts, separated by dots.")
  if (parts[2] === "") return yield* reject("The token has no signature.")
  if (!parts.every(isBase64url)) return yield* reject("The token is not a JWT: its parts must be base64url.")
})

/** Checks the header of a token. Returns its key and algorithm, which are not verified yet. */
const readHeader = Effect.fnUntraced(function* (
  token: string,
  algorithms: ReadonlyArray<string>,
  types: ReadonlyArray<string>,
): Effect.fn.Return<{ readonly kid: string; readonly alg: string }, Unauthorized> {
  const header: Record<string, unknown> = yield* Effect.try({
    try: () => decodeProtectedHeader(token),
    catch: () => new Unauthorized({ error: "The token is not a JWT: its header is not a JSON object." }),
  })
  const { alg } = header
  if (typeof alg !== "string" || !algorithms.includes(alg)) {
    return yield* reject(`The token must be signed with ${algorithms.join(" or ")}.`)
  }
  const refused = refusedParameters.find((name) => Object.hasOwn(header, name))
  if (refused !== undefined) return yield* reject(`The token's header must not have the parameter "${refused}".`)
  const { typ, kid } = header
  if (typ !== undefined && (typeof typ !== "string" || !types.includes(typ.toUpperCase()))) {
    return yield* reject(`The token's header parameter "typ" must be ${types.join(" or ")}.`)
  }
  if (typeof kid !== "string" || kid === "" || kid.length > 256) {
    return yield* reject(`The token's header must name its key ("kid"), in 1 to 256 characters.`)
  }
  return { kid, alg }
})

const timeFaults: Record<string, string> = {
  exp: "The token has expired.",
  nbf: "The token is not valid yet.",
  iat: "The token was issued in the future.",
}

/** The claims that are times. Source: RFC 7519, section 4.1; OpenID Connect Core 1.0, sections 2 and 5.1. */
const timeClaims = ["exp", "nbf", "iat", "auth_time", "updated_at"]
/** The end of the year 9999, in seconds. Beyond it, a number is no time here or in the database. */
const maxTimeSeconds = 253_402_300_799
const isTime = (value: unknown) => typeof value === "number" && value >= 0 && value <= maxTimeSeconds

const wrongSignature = "The token's signature is not the provider's."

/** The sentence for an error of jose, whose own message may repeat the content of the token. */
const faultSentence = (fault: unknown, { issuer, audiences }: TrustedIssuer): string => {
  if (fault instanceof errors.JWSSignatureVerificationFailed) return wrongSignature
  if (fault instanceof errors.JWTExpired) return timeFaults["exp"]!
  if (fault instanceof errors.JWTClaimValidationFailed) {
    const { claim, reason } = fault
    if (reason === "missing") return `The token's claim "${claim}" is missing.`
    if (reason === "invalid") return `The token's claim "${claim}" must be a number.`
    if (claim === "iss") return `The token's issuer (iss) must be ${issuer}.`
    if (claim === "aud") return `The token's audience (aud) must be ${audiences.join(" or ")}.`
    if (claim in timeFaults) return timeFaults[claim]!
  }
  return "The token cannot be verified: its claims are malformed. Request a new token."
}

/** Checks the signature and the registered claims (RFC 7519, section 4.1), by Effect's clock. */
const checkToken = Effect.fnUntraced(function* (
  token: string,
  key: CryptoKey,
  provider: TrustedIssuer,
): Effect.fn.Return<JWTPayload, Unauthorized> {
  const now = yield* Clock.currentTimeMillis
  const { payload } = yield* Effect.tryPromise({
    try: () =>
      jwtVerify(token, key, {
        algorithms: [...provider.algorithms],
        issuer: provider.issuer,
        audience: [...provider.audiences],
        requiredClaims: ["exp"],
        clockTolerance: maxClockSkewSeconds,
        currentDate: new Date(now),
      }),
    catch: (fault) => new Unauthorized({ error: faultSentence(fault, provider) }),
  })
  const wrong = timeClaims.find((claim) => payload[claim] !== undefined && !isTime(payload[claim]))
  if (wrong !== undefined) {
    return yield* reject(`The token's claim "${wrong}" must be a time in seconds, from 0 to ${maxTimeSeconds}.`)
  }
  // jose checks iat only together with a maximum age.
  if (payload.iat !== undefined && payload.iat > Math.floor(now / 1000) + maxClockSkewSeconds) {
    return yield* reject(timeFaults["iat"]!)
  }
  return payload
})

/**
 * Verifies a compact JWT of an issuer with its published keys, and returns its claims. Fails with `Unauthorized` if the
 * token is invalid, and with `Unavailable` if its key is unknown and the issuer is down. Source: RFC 7515, RFC 7519,
 * RFC 8725.
 *
 * @param types of the header, in upper case
 */
export const verifyToken = Effect.fnUntraced(function* (
  token: string,
  trusted: TrustedIssuer,
  types: ReadonlyArray<string> = ["JWT"],
): Effect.fn.Return<JWTPayload, Unauthorized | Unavailable> {
  yield* checkFormat(token)
  const { alg, kid } = yield* readHeader(token, trusted.algorithms, types)
  const keys = yield* trusted.keys
    .find(kid, alg)
    .pipe(
      Effect.mapError(
        ({ reason }) =>
          new Unavailable({ error: `The keys of the token's provider cannot be fetched now (${reason}); try again.` }),
      ),
    )
  if (Option.isNone(keys)) return yield* reject("The provider does not publish the key that signed the token.")
  // Several keys may have one id: a signature that is not of one may be of the next.
  return yield* keys.value
    .map((key) => checkToken(token, key, trusted))
    .reduce((first, next) =>
      Effect.catchIf(
        first,
        ({ error }) => error === wrongSignature,
        () => next,
      ),
    )
})
