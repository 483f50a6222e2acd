import { Result, Schema } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ClaimedRun } from "../CiRun.ts"
import * as Claims from "./claims.ts"

/**
 * The claims of a GitHub Actions OIDC token that the service uses. `head_ref` is an empty string outside pull requests.
 * Source: GitHub's "OpenID Connect reference", the token's payload.
 */
export const GitHubClaims = Schema.Struct({
  repository: Claims.claimText(/^[\w./-]{1,201}$/, "a string of the form owner/name"),
  repository_id: Claims.Digits,
  repository_owner: Claims.claimText(/^[\w.-]{1,100}$/, "the name of the repository's owner"),
  repository_owner_id: Schema.optionalKey(Claims.Digits),
  ref: Claims.Ref,
  sha: Claims.Sha,
  event_name: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the name of an event"),
  run_id: Claims.Digits,
  run_attempt: Claims.Attempt,
  head_ref: Schema.optionalKey(Claims.Ref),
  workflow: Schema.optionalKey(Claims.Label),
  workflow_ref: Schema.optionalKey(Claims.Label),
  job_workflow_ref: Schema.optionalKey(Claims.Label),
  actor: Schema.optionalKey(Claims.Label),
  environment: Schema.optionalKey(Claims.Label),
})
export type GitHubClaims = typeof GitHubClaims.Type

const repositoryForm = /^([\w.-]{1,100})\/([\w.-]{1,100})$/
const pullRequestRef = /^refs\/pull\/([1-9][0-9]{0,8})\/(?:merge|head)$/

/**
 * The run of a GitHub token. Fails when `repository` and `repository_owner` disagree, for `pull_request_target`, and for a
 * run without a branch or tag. Every run but a push to a branch is a preview: its ref can be chosen by a stranger, or is not
 * a branch.
 * Source of the claims' meaning: GitHub's "OpenID Connect reference" and "Events that trigger workflows".
 */
export const runFromGitHub = (claims: GitHubClaims): Result.Result<ClaimedRun, Unauthorized> => {
  const { event_name: eventName, ref, sha } = claims
  const [, owner, repo] = repositoryForm.exec(claims.repository) ?? []
  if (owner === undefined || repo === undefined || repo === "." || repo === "..") {
    return Claims.refuse(`The token's claim "repository" must have the form owner/name.`)
  }
  if (owner !== claims.repository_owner) {
    return Claims.refuse(`The token's claims "repository" and "repository_owner" name different owners.`)
  }
  if (eventName === "pull_request_target") {
    // Its ref is the default branch, but it can build the code of a stranger.
    return Claims.refuse("Runs of the event pull_request_target are not registered; use pull_request.")
  }

  const headRef = Claims.orNull(claims.head_ref)
  const pullRequest = pullRequestRef.exec(ref)
  const isPullRequest = eventName.startsWith("pull_request") || pullRequest !== null
  if (eventName === "pull_request" && headRef === null) {
    return Claims.refuse(`The token is from a pull request and its claim "head_ref" is missing.`)
  }
  const branch = isPullRequest && headRef !== null ? headRef : Claims.branchOf(ref)
  if (branch === "") return Claims.refuse(`The token's claim "ref" names no branch or tag.`)

  return Result.succeed({
    owner,
    repo,
    ownerId: Claims.orNull(claims.repository_owner_id),
    repositoryId: claims.repository_id,
    branch,
    ref,
    sha,
    preview: !(eventName === "push" && Claims.isBranchRef(ref)),
    pullRequest: isPullRequest && pullRequest !== null ? Number(pullRequest[1]) : null,
    runId: claims.run_id,
    runAttempt: Number(claims.run_attempt),
    workflow: Claims.orNull(claims.workflow),
    workflowFile: Claims.fileOfReference(claims.job_workflow_ref || claims.workflow_ref, [ref, sha]),
    actor: Claims.orNull(claims.actor),
    eventName,
    environment: Claims.orNull(claims.environment),
  })
}

export const readGitHub = Claims.reader(GitHubClaims, runFromGitHub)
