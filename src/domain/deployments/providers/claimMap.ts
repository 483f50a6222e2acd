import { Result } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ReadRun } from "../CiRun.ts"
import type { PinFault } from "../../projects/RepositoryLink.ts"
import { namePattern, ownerPattern } from "../../RepositoryOwner.ts"
import * as Claims from "./claims.ts"

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
      if (needed.includes(field)) return Claims.refuse(`The token's claim "${nameOf(source)}" (${field}) is missing.`)
      continue
    }
    const [pattern, expected] = patterns[field]
    if (!pattern.test(value))
      return Claims.refuse(`The token's claim "${nameOf(source)}" (${field}) must be ${expected}.`)
    values[field] = value
  }
  return Result.succeed(values)
}

const repositoryOf = ({ name, owner, repository }: Values) => {
  if (owner === undefined) return repository === undefined ? undefined : Claims.splitRepository(repository)
  if (repository?.includes("/")) {
    const split = Claims.splitRepository(repository)
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
      if (repository === undefined)
        return Claims.refuse("The token's claims name no repository of the form owner/name.")
      const branch = values.branch ?? Claims.branchOf(values.ref ?? "")
      if (branch === "") return Claims.refuse("The token's claims name no branch or tag.")
      const ref = values.ref ?? `refs/heads/${branch}`
      const isBranch = !ref.startsWith("refs/") || ref === `refs/heads/${branch}`
      return Result.succeed({
        ...repository,
        ownerId: values.ownerId ?? null,
        repositoryId: values.repositoryId!,
        branch,
        ref,
        sha: values.sha ?? "",
        previewReason: unmet(values) ?? Claims.previewReason(isBranch, values.event ?? "other", ref),
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
