import { Result, Schema } from "effect"
import type { CiClaims } from "./CiToken.ts"
import { Unauthorized } from "../Errors.ts"
import { Id, Timestamp } from "../Schemas.ts"

/** One CI run of a project, as the service keeps and shows it. */
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

/** What a CI run is, read off its token's claims: the deployment to be, and the repository that it belongs to. */
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
  /** The owner and name of the repository, in the provider's own case. */
  readonly owner: string
  readonly repo: string
  /** The provider's id of the repository: it stays through renames, and no other repository ever gets it. */
  readonly repositoryId: string
  /** What the first registration may take as the project's default branch; null when the run shows none (a tag …). */
  readonly defaultBranchCandidate: string | null
}

const repositoryForm = /^([\w.-]{1,100})\/([\w.-]{1,100})$/
const pullRequestRef = /^refs\/pull\/([1-9][0-9]{0,8})\/(?:merge|head)$/
const branches = "refs/heads/"
const tags = "refs/tags/"
/** GitHub's merge queue tests on branches of its own under this name, and deletes them. */
const mergeQueue = "gh-readonly-queue/"

const refuse = (error: string) => Result.fail(new Unauthorized({ error }))
const orNull = (text: string | undefined) => (text === undefined || text === "" ? null : text)
/** One prefix only: a branch may be called refs/tags/main, and must not pass for main. */
const branchOf = (ref: string) => {
  const prefix = [branches, tags].find((prefix) => ref.startsWith(prefix))
  return prefix === undefined ? ref : ref.slice(prefix.length)
}

/**
 * What the run of a verified token is. Fails with `Unauthorized` for a repository that is not the owner's, for
 * `pull_request_target` and for a run without a branch or tag. Only a push to a branch is no preview: every other
 * event runs on a ref that someone else chose, or that is no branch.
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
    // Its ref is the default branch, while the code that it builds can be a stranger's.
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
      : ref.startsWith(branches) && !branch.startsWith(mergeQueue)
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
 * The subdomain that a repository's project asks for: `<name>-<owner>` as a DNS label (RFC 1123: lower-case letters,
 * digits and inner hyphens, 63 characters at most, never empty). Runs of other characters become one hyphen, so that no
 * label starts with `xn--` or another reserved prefix (RFC 5891). `n` above 1 ends it in `-<n>`, for when the ones
 * before are taken.
 */
export const subdomainFor = (owner: string, repo: string, n = 1): string => {
  const label = trimHyphens(`${repo}-${owner}`.toLowerCase().replace(/[^a-z0-9]+/g, "-")) || "project"
  const suffix = n > 1 ? `-${n}` : ""
  return trimHyphens(label.slice(0, 63 - suffix.length)) + suffix
}
