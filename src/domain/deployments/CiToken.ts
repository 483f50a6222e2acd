import type { Effect, Redacted } from "effect"
import { Context, Result, Schema, SchemaIssue } from "effect"
import type { Unavailable } from "../Errors.ts"
import { Unauthorized } from "../Errors.ts"
import { Text } from "../Schemas.ts"

const claim = (pattern: RegExp, expected: string) => Text.check(Schema.isPattern(pattern, { expected }))

/** An id of GitHub's: a number that comes as a string, and stays one (it can outgrow a double). */
const Digits = claim(/^[1-9][0-9]{0,18}$/, "a string of 1 to 19 digits")

/** A git ref or a branch name: bounded, and of no character that git refuses and a log would stumble over. */
const Ref = claim(
  /^[^\p{Cc} ]{0,1024}$/u,
  "a git ref of at most 1,024 characters, without spaces or control characters",
)

const Label = Text.check(Schema.isMaxLength(1024, { expected: "a string of at most 1,024 characters" }))

/**
 * The claims of a verified GitHub Actions OIDC token that the service uses, by the provider's own names. Others are
 * ignored. `head_ref` and `base_ref` are empty strings outside pull requests.
 * Source: GitHub's "OpenID Connect reference", the token's payload.
 */
export const CiClaims = Schema.Struct({
  repository: claim(/^[\w./-]{1,201}$/, "a string of the form owner/name"),
  repository_id: Digits,
  repository_owner: claim(/^[\w.-]{1,100}$/, "the name of the repository's owner"),
  ref: Ref,
  sha: claim(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, "a commit's hash, of 40 or 64 hexadecimal digits"),
  event_name: claim(/^[a-z][a-z0-9_]{0,63}$/, "the name of an event"),
  run_id: Digits,
  // Nine digits fit the 32-bit integer that a deployment keeps.
  run_attempt: claim(/^[1-9][0-9]{0,8}$/, "a string of 1 to 9 digits"),
  head_ref: Schema.optionalKey(Ref),
  base_ref: Schema.optionalKey(Ref),
  workflow: Schema.optionalKey(Label),
  actor: Schema.optionalKey(Label),
  environment: Schema.optionalKey(Label),
})
export type CiClaims = typeof CiClaims.Type

const decode = Schema.decodeUnknownResult(CiClaims)

/** Words without the input: a claim's value is the sender's, and has no place in an answer or a log. */
const describe = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => (issue._tag === "MissingKey" ? "is missing" : "must be a string"),
  checkHook: ({ filter }) => `must be ${filter.annotations?.expected ?? "well-formed"}`,
})

/**
 * The claims that the service uses, out of a token's payload. Fails with a sentence that names the first claim that is
 * missing or malformed and says what it must be, never what it was.
 */
export const claimsFrom = (payload: unknown): Result.Result<CiClaims, Unauthorized> =>
  Result.mapError(decode(payload), ({ issue }) => {
    const [first] = describe(issue).issues
    return new Unauthorized({
      error: `The token's claim "${String(first?.path?.[0] ?? "repository")}" ${first?.message ?? "is missing"}.`,
    })
  })

/** Verifies CI tokens against their provider's published keys. */
export class CiTokens extends Context.Service<
  CiTokens,
  {
    /**
     * The claims of a token whose signature, issuer, audience and times hold. Fails with `Unauthorized` (a sentence
     * that says what is wrong, without the token) or `Unavailable` (the provider is down and the token's key is not
     * among those known).
     */
    readonly verify: (token: Redacted.Redacted<string>) => Effect.Effect<CiClaims, Unauthorized | Unavailable>
  }
>()("gatehouse/domain/CiToken/CiTokens") {}
