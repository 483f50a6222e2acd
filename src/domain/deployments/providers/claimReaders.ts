import { Result, Schema, SchemaIssue } from "effect"
import { Unauthorized } from "../../Errors.ts"
import { namePattern, ownerPattern } from "../../RepositoryOwner.ts"
import { faultInWords, Text } from "../../Schemas.ts"
import type { ClaimedRun, ReadRun } from "../CiRun.ts"
import type { PinFault } from "../../projects/RepositoryLink.ts"

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
    const fault = faultInWords(first?.message ?? "is missing")
    return refuse(`The token's claim "${String(first?.path?.[0] ?? "sub")}" ${fault}.`)
  }
}

/** Where the value of a field comes from: a path of claims, one claim by its exact name, or a constant. */
type ClaimSource = string | { readonly claim: string } | { readonly value: string }

/** The fields of a claim map. `repository` is `owner/name`; or `owner` and `name` stand by themselves. */
export const claimFields = [
  "owner",
  "ownerId",
  "name",
  "repository",
  "repositoryId",
  "ref",
  "branch",
  "sha",
  "runId",
  "runAttempt",
  "event",
  "workflow",
  "actor",
  "environment",
] as const
export type ClaimField = (typeof claimFields)[number]

export interface ClaimMap {
  readonly claims: { readonly [Field in ClaimField]?: ClaimSource | undefined }
  /** The values that make a run no preview, by field. A run must match each field. Absent: every run is a preview. */
  readonly production?: { readonly [Field in ClaimField]?: ReadonlyArray<string> | undefined } | undefined
}

const patterns: { readonly [Field in ClaimField]: readonly [RegExp, string] } = {
  owner: [ownerPattern, "the name of an owner"],
  ownerId: [/^[\x21-\x7e]{1,255}$/, "1 to 255 visible ASCII characters"],
  name: [namePattern, "the name of a repository"],
  repository: [/^[\w./-]{1,356}$/, "a repository of the form owner/name"],
  repositoryId: [/^[\x21-\x7e]{1,255}$/, "1 to 255 visible ASCII characters"],
  ref: [/^[^\p{Cc} ]{1,1024}$/u, "a git ref"],
  branch: [/^[^\p{Cc} ]{1,1024}$/u, "the name of a branch"],
  sha: [/^[0-9a-f]{7,64}$/, "a commit's hash"],
  runId: [/^[\x21-\x7e]{1,255}$/, "1 to 255 visible ASCII characters"],
  runAttempt: [/^[1-9][0-9]{0,8}$/, "a number of 1 to 9 digits"],
  event: [/^[^\p{Cc}]{1,255}$/u, "the name of an event"],
  workflow: [/^[^\p{Cc}]{1,1024}$/u, "the name of a workflow"],
  actor: [/^[^\p{Cc}]{1,1024}$/u, "a name"],
  environment: [/^[^\p{Cc}]{1,1024}$/u, "the name of an environment"],
}

const own = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined

/** Numbers and booleans count as their text; anything else is no value. */
const asText = (value: unknown) =>
  typeof value === "string"
    ? value
    : Number.isSafeInteger(value) || typeof value === "boolean"
      ? String(value)
      : undefined

const nameOf = (source: ClaimSource) => (typeof source === "string" ? source : "claim" in source ? source.claim : "")

const valueOf = (payload: unknown, source: ClaimSource): string | undefined => {
  if (typeof source !== "string" && "value" in source) return source.value
  const found = typeof source === "string" ? source.split(".").reduce(own, payload) : own(payload, source.claim)
  return asText(found) || undefined
}

type Values = { readonly [Field in ClaimField]?: string }
const isText = Schema.is(Text)

/** Reads the fields of a map from a payload. Fails for a malformed value, and for one of `needed` that is missing. */
const readValues = (
  payload: unknown,
  { claims }: ClaimMap,
  needed: ReadonlyArray<ClaimField>,
): Result.Result<Values, Unauthorized> => {
  const values: { [Field in ClaimField]?: string } = {}
  for (const field of claimFields) {
    const source = claims[field]
    if (source === undefined) continue
    const value = valueOf(payload, source)
    if (value === undefined) {
      if (needed.includes(field)) return refuse(`The token's claim "${nameOf(source)}" (${field}) is missing.`)
      continue
    }
    const [pattern, ofField] = patterns[field]
    const expected = isText(value) ? ofField : "text without NUL characters or lone surrogates"
    if (!isText(value) || !pattern.test(value))
      return refuse(`The token's claim "${nameOf(source)}" (${field}) must be ${expected}.`)
    values[field] = value
  }
  return Result.succeed(values)
}

const repositoryOf = ({ name, owner, repository }: Values) => {
  if (owner === undefined) return repository === undefined ? undefined : splitRepository(repository)
  if (repository?.includes("/")) {
    const split = splitRepository(repository)
    return split?.owner === owner ? split : undefined
  }
  const repo = name ?? repository
  return repo === undefined ? undefined : { owner, repo }
}

/**
 * Reads runs by a claim map of the operator. A tag, and a ref that is no branch, are previews whatever the map says.
 */
export const readByMap = (map: ClaimMap): ReadRun => {
  const needed: ReadonlyArray<ClaimField> = [
    "repositoryId",
    "runId",
    ...(["owner", "name", "repository"] as const).filter((field) => map.claims[field] !== undefined),
    ...(map.claims.branch === undefined ? (["ref"] as const) : []),
  ]
  const conditions = Object.entries(map.production ?? {}) as ReadonlyArray<[ClaimField, ReadonlyArray<string>]>
  /** Why the conditions of `production` make a run a preview. */
  const unmet = (values: Values) => {
    if (conditions.length === 0)
      return "The provider's entry in OIDC_PROVIDERS has no production, so each run is a preview."
    const [field] = conditions.find(([field, allowed]) => !allowed.includes(values[field] ?? "")) ?? []
    if (field === undefined) return null
    return `production of the provider's entry in OIDC_PROVIDERS does not list the run's ${field}: ${values[field] ?? "none"}.`
  }

  return (payload) =>
    Result.flatMap(readValues(payload, map, needed), (values) => {
      const repository = repositoryOf(values)
      if (repository === undefined) return refuse("The token's claims name no repository of the form owner/name.")
      const branch = values.branch ?? branchOf(values.ref ?? "")
      if (branch === "") return refuse("The token's claims name no branch or tag.")
      const ref = values.ref ?? `refs/heads/${branch}`
      const isBranch = !ref.startsWith("refs/") || ref === `refs/heads/${branch}`
      return Result.succeed({
        ...repository,
        ownerId: values.ownerId ?? null,
        repositoryId: values.repositoryId!,
        branch,
        ref,
        sha: values.sha ?? "",
        previewReason: unmet(values) ?? previewReason(isBranch, values.event ?? "other", ref),
        pullRequest: null,
        runId: values.runId!,
        runAttempt: Number(values.runAttempt ?? 1),
        workflow: values.workflow ?? null,
        workflowFile: values.workflow ?? null,
        actor: values.actor ?? null,
        eventName: values.event ?? "other",
        environment: values.environment ?? null,
      })
    })
}

/** The fault of pins of claims that the map does not read, or of a form that it refuses. */
export const pinFaultOf =
  ({ claims }: ClaimMap): PinFault =>
  (pins) => {
    for (const pin of ["workflow", "environment"] as const) {
      const [form, expected] = patterns[pin]
      const value = pins[pin]
      if (value === null) continue
      if (claims[pin] === undefined)
        return `${pin} cannot be pinned: the provider's entry in OIDC_PROVIDERS has no claims.${pin}.`
      if (!form.test(value)) return `${pin} must be ${expected}; no token has another form.`
    }
    return undefined
  }
