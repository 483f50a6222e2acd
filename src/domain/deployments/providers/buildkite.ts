import { Result, Schema } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ClaimedRun } from "../CiRun.ts"
import * as Claims from "./claims.ts"

const Slug = Claims.claimText(/^[\w.-]{1,100}$/, "a slug of letters, digits, dots, hyphens or underscores")

/**
 * The claims of a Buildkite token that the service uses. `organization_id` and `pipeline_id` are optional in Buildkite:
 * slugs can be reused, so the service needs the ids.
 * Source: Buildkite's "buildkite-agent oidc", claims and optional claims.
 */
export const BuildkiteClaims = Schema.Struct({
  organization_slug: Slug,
  organization_id: Claims.OpaqueId,
  pipeline_slug: Slug,
  pipeline_id: Claims.OpaqueId,
  build_number: Schema.Union([
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
    Claims.Digits,
  ]),
  build_branch: Claims.Ref,
  build_tag: Schema.optionalKey(Schema.NullOr(Claims.Ref)),
  build_commit: Schema.optionalKey(Schema.NullOr(Claims.Label)),
  build_source: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the source of a build"),
  step_key: Schema.optionalKey(Schema.NullOr(Claims.Label)),
})
type BuildkiteClaims = typeof BuildkiteClaims.Type

const commitForm = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/

/**
 * The run of a Buildkite token: a build. The pipeline is the repository, because the token names no other. Only a build that
 * a webhook started for a branch is no preview. A branch with a colon is a fork's (`stranger:main`).
 */
const runFromBuildkite = (claims: BuildkiteClaims): Result.Result<ClaimedRun, Unauthorized> => {
  const { build_branch: branch, build_source: eventName } = claims
  const tag = Claims.orNull(claims.build_tag)
  if (branch === "" && tag === null) return Claims.refuse(`The token's claim "build_branch" names no branch.`)
  // A git branch has no colon: Buildkite writes one between the owner of a fork and its branch.
  const isPush = eventName === "webhook" && tag === null && !branch.includes(":")
  const commit = claims.build_commit ?? ""
  return Result.succeed({
    owner: claims.organization_slug,
    repo: claims.pipeline_slug,
    ownerId: claims.organization_id,
    repositoryId: claims.pipeline_id,
    branch: tag ?? branch,
    ref: tag === null ? `refs/heads/${branch}` : `refs/tags/${tag}`,
    // A build of HEAD has no hash yet.
    sha: commitForm.test(commit) ? commit : "",
    preview: !isPush,
    pullRequest: null,
    runId: `${claims.build_number}`,
    runAttempt: 1,
    workflow: Claims.orNull(claims.step_key),
    workflowFile: Claims.orNull(claims.step_key),
    actor: null,
    eventName,
    environment: null,
  })
}

export const readBuildkite = Claims.reader(BuildkiteClaims, runFromBuildkite)
