import { Result, Schema, SchemaIssue } from "effect"
import { Unauthorized } from "../../Errors.ts"
import { namePattern, ownerPattern } from "../../RepositoryOwner.ts"
import { Text } from "../../Schemas.ts"
import type { ClaimedRun, ReadRun } from "../CiRun.ts"

/** The text of one claim of a token. */
export const claimText = (pattern: RegExp, expected: string) => Text.check(Schema.isPattern(pattern, { expected }))

/** A numeric id. It is a number in a string, and can exceed the precision of a double. */
export const Digits = claimText(/^[1-9][0-9]{0,18}$/, "a string of 1 to 19 digits")

/** A number of an attempt. Nine digits fit into the 32-bit column of a deployment. */
export const Attempt = claimText(/^[1-9][0-9]{0,8}$/, "a string of 1 to 9 digits")

/** A git ref or a branch name, without the characters that git refuses and that would break a log line. */
export const Ref = claimText(
  /^[^\p{Cc} ]{0,1024}$/u,
  "a git ref of at most 1,024 characters, without spaces or control characters",
)

const commitForm = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/
export const Sha = claimText(commitForm, "a commit's hash, of 40 or 64 hexadecimal digits")
/** The hash of a commit in a claim that may have none; "" without one. */
export const commitOf = (text: string | null | undefined) => (text && commitForm.test(text) ? text : "")

/** An id in the form of a provider: visible ASCII, such as a UUID. */
export const OpaqueId = claimText(/^[\x21-\x7e]{1,255}$/, "1 to 255 visible ASCII characters")

export const Label = Text.check(Schema.isMaxLength(1024, { expected: "a string of at most 1,024 characters" }))

/** A claim that a token may not have: providers leave it out, or write null. */
export const optional = <S extends Schema.Top>(claim: S) => Schema.optionalKey(Schema.NullOr(claim))

const isTooLong = (owner: string) => owner.length > 255

export const orNull = (text: string | undefined | null) => (text === undefined || text === "" ? null : text)
export const refuse = (error: string) => Result.fail(new Unauthorized({ error }))

const branches = "refs/heads/"
const tags = "refs/tags/"

export const isBranchRef = (ref: string) => ref.startsWith(branches) && ref.length > branches.length

/** Why a run that is no push to a branch is a preview; `null` for such a push. */
export const previewReason = (isPush: boolean, eventName: string, ref: string): string | null =>
  isPush ? null : `Only a push to a branch is no preview: the event of the run is ${eventName}, and its ref ${ref}.`

/** Removes only one prefix: a branch named refs/tags/main must not become main. */
export const branchOf = (ref: string) => {
  const prefix = [branches, tags].find((prefix) => ref.startsWith(prefix))
  return prefix === undefined ? ref : ref.slice(prefix.length)
}

/** Splits `owner/name` at its last slash; `undefined` when the parts are malformed. */
export const splitRepository = (repository: string): { readonly owner: string; readonly repo: string } | undefined => {
  const slash = repository.lastIndexOf("/")
  const [owner, repo] = [repository.slice(0, Math.max(slash, 0)), repository.slice(slash + 1)]
  return ownerPattern.test(owner) && !isTooLong(owner) && namePattern.test(repo) ? { owner, repo } : undefined
}

/**
 * The file of a reference such as `owner/name/.github/workflows/deploy.yml@refs/heads/main`, without the part after
 * `@`. File names and refs may contain `@`, so the run's own ref and commit are tried first.
 */
export const fileOfReference = (reference: string | null | undefined, ends: ReadonlyArray<string>): string | null => {
  if (!reference) return null
  const end = ends.find((end) => end !== "" && reference.endsWith(`@${end}`))
  if (end !== undefined) return reference.slice(0, -end.length - 1)
  const at = reference.lastIndexOf("@")
  return at === -1 ? reference : reference.slice(0, at)
}

/** Describes errors without the value of the claim, which must not get into an answer or a log. */
const describe = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "is missing"
    return issue._tag === "InvalidType" && issue.ast._tag === "String" ? "must be a string" : "has the wrong type"
  },
  checkHook: ({ filter }) => `must be ${filter.annotations?.expected ?? "well-formed"}`,
})

/**
 * A reader of claims: a schema of the claims that a provider needs, and the run that they mean. It ignores other
 * claims. It names the first missing or malformed claim and its rule, without its value.
 */
export const reader = <S extends Schema.ConstraintDecoder<unknown>>(
  schema: S,
  toRun: (claims: S["Type"]) => Result.Result<ClaimedRun, Unauthorized>,
): ReadRun => {
  const decode = Schema.decodeUnknownResult(schema)
  return (payload) => {
    const decoded = decode(payload)
    if (Result.isSuccess(decoded)) return toRun(decoded.success)
    const [first] = describe(decoded.failure.issue).issues
    return refuse(`The token's claim "${String(first?.path?.[0] ?? "sub")}" ${first?.message ?? "is missing"}.`)
  }
}
