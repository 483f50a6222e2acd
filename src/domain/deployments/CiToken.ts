import type { Effect, Redacted } from "effect"
import { Context, Result, Schema, SchemaIssue } from "effect"
import type { Unavailable } from "../Errors.ts"
import { Unauthorized } from "../Errors.ts"
import { Text } from "../Schemas.ts"

/** The text of one claim of a token. */
const claimText = (pattern: RegExp, expected: string) => Text.check(Schema.isPattern(pattern, { expected }))

/** An id of GitHub. It is a number in a string, and can exceed the precision of a double. */
const Digits = claimText(/^[1-9][0-9]{0,18}$/, "a string of 1 to 19 digits")

/** A git ref or a branch name, without the characters that git refuses and that would break a log line. */
const Ref = claimText(
  /^[^\p{Cc} ]{0,1024}$/u,
  "a git ref of at most 1,024 characters, without spaces or control characters",
)

const Label = Text.check(Schema.isMaxLength(1024, { expected: "a string of at most 1,024 characters" }))

/**
 * The claims of a GitHub Actions OIDC token that the service uses. It ignores other claims. `head_ref` and `base_ref` are empty strings outside pull requests.
 * Source: GitHub's "OpenID Connect reference", the token's payload.
 */
export const CiClaims = Schema.Struct({
  repository: claimText(/^[\w./-]{1,201}$/, "a string of the form owner/name"),
  repository_id: Digits,
  repository_owner: claimText(/^[\w.-]{1,100}$/, "the name of the repository's owner"),
  ref: Ref,
  sha: claimText(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, "a commit's hash, of 40 or 64 hexadecimal digits"),
  event_name: claimText(/^[a-z][a-z0-9_]{0,63}$/, "the name of an event"),
  run_id: Digits,
  // Nine digits fit into the 32-bit column of a deployment.
  run_attempt: claimText(/^[1-9][0-9]{0,8}$/, "a string of 1 to 9 digits"),
  head_ref: Schema.optionalKey(Ref),
  base_ref: Schema.optionalKey(Ref),
  workflow: Schema.optionalKey(Label),
  actor: Schema.optionalKey(Label),
  environment: Schema.optionalKey(Label),
})
export type CiClaims = typeof CiClaims.Type

const decode = Schema.decodeUnknownResult(CiClaims)

/** Describes errors without the value of the claim, which must not get into an answer or a log. */
const describe = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => (issue._tag === "MissingKey" ? "is missing" : "must be a string"),
  checkHook: ({ filter }) => `must be ${filter.annotations?.expected ?? "well-formed"}`,
})

/**
 * Reads the claims from the payload of a token. Fails with a sentence that names the first missing or malformed claim and
 * its rule, without its value.
 */
export const claimsFrom = (payload: unknown): Result.Result<CiClaims, Unauthorized> =>
  Result.mapError(decode(payload), ({ issue }) => {
    const [first] = describe(issue).issues
    return new Unauthorized({
      error: `The token's claim "${String(first?.path?.[0] ?? "repository")}" ${first?.message ?? "is missing"}.`,
    })
  })

/** Verifies CI tokens with the published keys of their provider. */
export class CiTokens extends Context.Service<
  CiTokens,
  {
    /**
     * Returns the claims of a token with a valid signature, issuer, audience and lifetime. Fails with `Unauthorized` and a
     * sentence without the token, or with `Unavailable` when the provider is down and the key of the token is not known.
     */
    readonly verify: (token: Redacted.Redacted<string>) => Effect.Effect<CiClaims, Unauthorized | Unavailable>
  }
>()("gatehouse/domain/CiToken/CiTokens") {}
