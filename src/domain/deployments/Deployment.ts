import { Result, Schema } from "effect"
import type { CiClaims } from "./CiToken.ts"
import { Unauthorized } from "../Errors.ts"
import { Id, Timestamp } from "../Schemas.ts"

/** The record of one CI run of a project. */
export const Deployment = Schema.Struct({
  id: Id,
  projectId: Id,
  orgId: Id,
  provider: Schema.Literal("github"),
  branch: Schema.String.annotate({ examples: ["main"] }),
  ref: Schema.String.annotate({ examples: ["refs/heads/main"] }),
  sha: Schema.String.annotate({ examples: ["6dcb09b5b57875f334f61aebed695e2e4193db5e"] }),
  preview: Schema.Boolean.annotate({ examples: [false] }),
  pullRequest: Schema.NullOr(Schema.Int).annotate({ examples: [null] }),
  runId: Schema.String.annotate({ examples: ["1658821493"] }),
  runAttempt: Schema.Int,
  workflow: Schema.NullOr(Schema.String).annotate({ examples: ["docs"] }),
  actor: Schema.NullOr(Schema.String).annotate({ examples: ["octocat"] }),
  eventName: Schema.String.annotate({ examples: ["push"] }),
  environment: Schema.NullOr(Schema.String).annotate({ examples: ["production"] }),
  createdAt: Timestamp,
}).annotate({ identifier: "Deployment" })
export interface Deployment extends Schema.Schema.Type<typeof Deployment> {}

/** A CI run, as the claims of its token describe it: the fields of its deployment, and its repository. */
export interface CiRun extends Pick<
  Deployment,
  | "branch"
  | "ref"
  | "sha"
  | "preview"
  | "pullRequest"
  | "runId"
  | "runAttempt"
  | "workflow"
  | "actor"
  | "eventName"
  | "environment"
> {
  /** The owner and the name of the repository, as the provider writes them. */
  readonly owner: string
  readonly repo: string
  /** The provider's id of the repository. It survives renames and is never reused. */
  readonly repositoryId: string
  /** The default branch for a project without one; `null` when the run does not suggest one, such as a run on a tag. */
  readonly defaultBranchCandidate: string | null
}

const repositoryForm = /^([\w.-]{1,100})\/([\w.-]{1,100})$/
const pullRequestRef = /^refs\/pull\/([1-9][0-9]{0,8})\/(?:merge|head)$/
const branches = "refs/heads/"
const tags = "refs/tags/"
/** The prefix of the temporary branches of GitHub's merge queue. */
const mergeQueuePrefix = "gh-readonly-queue/"

const refuse = (error: string) => Result.fail(new Unauthorized({ error }))
const orNull = (text: string | undefined) => (text === undefined || text === "" ? null : text)
/** Removes only one prefix: a branch named refs/tags/main must not become main. */
const branchOf = (ref: string) => {
  const prefix = [branches, tags].find((prefix) => ref.startsWith(prefix))
  return prefix === undefined ? ref : ref.slice(prefix.length)
}

/**
 * Returns the run of a verified token. Fails with `Unauthorized` when `repository` and `repository_owner` disagree, for
 * `pull_request_target`, and for a run without a branch or tag. Every run but a push to a branch is a preview: its ref can
 * be chosen by a stranger, or is not a branch.
 * Source of the claims' meaning: GitHub's "OpenID Connect reference" and "Events that trigger workflows".
 */
export const runFromClaims = (claims: CiClaims): Result.Result<CiRun, Unauthorized> => {
  const { event_name: eventName, ref } = claims
  const [, owner, repo] = repositoryForm.exec(claims.repository) ?? []
  if (owner === undefined || repo === undefined || repo === "." || repo === "..") {
    return refuse(`The token's claim "repository" must have the form owner/name.`)
  }
  if (owner !== claims.repository_owner) {
    return refuse(`The token's claims "repository" and "repository_owner" name different owners.`)
  }
  if (eventName === "pull_request_target") {
    // Its ref is the default branch, but it can build the code of a stranger.
    return refuse("Runs of the event pull_request_target are not registered; use pull_request.")
  }

  const headRef = orNull(claims.head_ref)
  const pullRequest = pullRequestRef.exec(ref)
  const isPullRequest = eventName.startsWith("pull_request") || pullRequest !== null
  if (eventName === "pull_request" && headRef === null) {
    return refuse(`The token is from a pull request and its claim "head_ref" is missing.`)
  }
  const branch = isPullRequest && headRef !== null ? headRef : branchOf(ref)
  if (branch === "") return refuse(`The token's claim "ref" names no branch or tag.`)

  return Result.succeed({
    owner,
    repo,
    repositoryId: claims.repository_id,
    branch,
    ref,
    sha: claims.sha,
    preview: !(eventName === "push" && ref.startsWith(branches)),
    pullRequest: isPullRequest && pullRequest !== null ? Number(pullRequest[1]) : null,
    defaultBranchCandidate: isPullRequest
      ? orNull(claims.base_ref)
      : ref.startsWith(branches) && !branch.startsWith(mergeQueuePrefix)
        ? branch
        : null,
    runId: claims.run_id,
    runAttempt: Number(claims.run_attempt),
    workflow: orNull(claims.workflow),
    actor: orNull(claims.actor),
    eventName,
    environment: orNull(claims.environment),
  })
}

const trimHyphens = (text: string) => text.replace(/^-+|-+$/g, "")

/**
 * The subdomain for the project of a repository: `<name>-<owner>` as a DNS label (RFC 1123: 1 to 63 lower-case letters,
 * digits or inner hyphens). Replaces other characters by single hyphens, so that no label has a reserved prefix such as
 * `xn--` (RFC 5891).
 *
 * @param n appends `-<n>` when above 1, for when the earlier subdomains are taken
 */
export const subdomainFor = (owner: string, repo: string, n = 1): string => {
  const label = trimHyphens(`${repo}-${owner}`.toLowerCase().replace(/[^a-z0-9]+/g, "-")) || "project"
  const suffix = n > 1 ? `-${n}` : ""
  return trimHyphens(label.slice(0, 63 - suffix.length)) + suffix
}
