import { Clock, Effect, Layer, Option, Redacted } from "effect"
import { base64url, type CryptoKey, decodeProtectedHeader, errors, jwtVerify, type JWTPayload } from "jose"
import { CiTokens, claimsFrom } from "../../domain/deployments/CiToken.ts"
import { Unauthorized, Unavailable } from "../../domain/Errors.ts"
import * as OidcKeys from "./OidcKeys.ts"

export interface OidcOptions {
  /** The issuer, exactly as in the tokens: `https://token.actions.githubusercontent.com`. */
  readonly issuer: string
  /** A token must have one of these audiences. */
  readonly audiences: ReadonlyArray<string>
}

/** Limit of a token's length in characters; GitHub's have about 2 KiB. */
const maxTokenLength = 16 * 1024
/** Tolerated difference between the provider's clock and ours. */
const maxClockSkewSeconds = 30
/** Header parameters that would let a token choose its own key, or that need unsupported semantics (RFC 8725, 3.10). */
const refusedParameters = ["jwk", "jku", "x5c", "x5u", "crit", "b64", "zip"]

const reject = (error: string) => Effect.fail(new Unauthorized({ error }))

/** Whether the text is canonical base64url without padding. Only one spelling of a token is accepted. */
const isBase64url = (part: string) => {
  try {
    return part !== "" && base64url.encode(base64url.decode(part)) === part
  } catch {
    return false
  }
}

/** Checks the format of a compact JWT (RFC 7515) and its header. Returns the `kid`, which is not verified yet. */
const readHeader = Effect.fnUntraced(function* (token: string): Effect.fn.Return<string, Unauthorized> {
  if (token.length > maxTokenLength) return yield* reject(`The token is longer than ${maxTokenLength} characters.`)
  const parts = token.split(".")
  if (parts.length === 5) return yield* reject("The token is encrypted, but it must be signed.")
  if (parts.length !== 3) return yield* reject("The token is not a JWT: it must have three parts, separated by dots.")
  if (parts[2] === "") return yield* reject("The token has no signature.")
  if (!parts.every(isBase64url)) return yield* reject("The token is not a JWT: its parts must be base64url.")

  const header: Record<string, unknown> = yield* Effect.try({
    try: () => decodeProtectedHeader(token),
    catch: () => new Unauthorized({ error: "The token is not a JWT: its header is not a JSON object." }),
  })
  if (header["alg"] !== "RS256") return yield* reject("The token must be signed with RS256.")
  const refused = refusedParameters.find((name) => Object.hasOwn(header, name))
  if (refused !== undefined) return yield* reject(`The token's header must not have the parameter "${refused}".`)
  const { typ, kid } = header
  if (typ !== undefined && (typeof typ !== "string" || typ.toUpperCase() !== "JWT")) {
    return yield* reject(`The token's header parameter "typ" must be JWT.`)
  }
  if (typeof kid !== "string" || kid === "" || kid.length > 256) {
    return yield* reject(`The token's header must name its key ("kid"), in 1 to 256 characters.`)
  }
  return kid
})

const timeFaults: Record<string, string> = {
  exp: "The token has expired.",
  nbf: "The token is not valid yet.",
  iat: "The token was issued in the future.",
}

/** The sentence for an error of jose, whose own message may repeat the content of the token. */
const faultSentence = (fault: unknown, { issuer, audiences }: OidcOptions): string => {
  if (fault instanceof errors.JWSSignatureVerificationFailed) return "The token's signature is not the provider's."
  if (fault instanceof errors.JWTExpired) return timeFaults["exp"]!
  if (fault instanceof errors.JWTClaimValidationFailed) {
    const { claim, reason } = fault
    if (reason === "missing") return `The token's claim "${claim}" is missing.`
    if (reason === "invalid") return `The token's claim "${claim}" must be a number.`
    if (claim === "iss") return `The token's issuer (iss) must be ${issuer}.`
    if (claim === "aud") return `The token's audience (aud) must be ${audiences.join(" or ")}.`
    if (claim in timeFaults) return timeFaults[claim]!
  }
  return "The token cannot be verified."
}

/** Checks the signature and the registered claims (RFC 7519, section 4.1), by Effect's clock. */
const checkToken = Effect.fnUntraced(function* (
  token: string,
  key: CryptoKey,
  options: OidcOptions,
): Effect.fn.Return<JWTPayload, Unauthorized> {
  const now = yield* Clock.currentTimeMillis
  const { payload } = yield* Effect.tryPromise({
    try: () =>
      jwtVerify(token, key, {
        algorithms: ["RS256"],
        issuer: options.issuer,
        audience: [...options.audiences],
        requiredClaims: ["exp"],
        clockTolerance: maxClockSkewSeconds,
        currentDate: new Date(now),
      }),
    catch: (fault) => new Unauthorized({ error: faultSentence(fault, options) }),
  })
  // jose checks iat only together with a maximum age.
  if (payload.iat !== undefined && payload.iat > Math.floor(now / 1000) + maxClockSkewSeconds) {
    return yield* reject(timeFaults["iat"]!)
  }
  return payload
})

/**
 * Verifies OIDC tokens of GitHub Actions with the keys at `<issuer>/.well-known/jwks`. `verify` takes a compact JWT and
 * returns the claims that the service uses. It fails with `Unauthorized` if the token is invalid, and with `Unavailable` if
 * the token's key is unknown and the provider is down.
 * Source: RFC 7515, RFC 7519, RFC 8725; GitHub's "OpenID Connect reference".
 */
export const layer = (options: OidcOptions) =>
  Layer.effect(
    CiTokens,
    Effect.gen(function* () {
      const keys = yield* OidcKeys.make(`${options.issuer.replace(/\/+$/, "")}/.well-known/jwks`)
      return CiTokens.of({
        verify: Effect.fn("Oidc.verify")(function* (redacted) {
          const token = Redacted.value(redacted)
          const kid = yield* readHeader(token)
          const key = yield* keys
            .find(kid)
            .pipe(
              Effect.mapError(
                () => new Unavailable({ error: "The keys of the token's provider cannot be fetched now; try again." }),
              ),
            )
          if (Option.isNone(key)) return yield* reject("The provider does not publish the token's key.")
          const payload = yield* checkToken(token, key.value, options)
          return yield* Effect.fromResult(claimsFrom(payload))
        }),
      })
    }),
  )
