import { Result, Schema } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ClaimedRun } from "../CiRun.ts"
import * as Claims from "./claims.ts"

/**
 * The claims of a GitLab ID token that the service uses, of GitLab.com and of self-managed GitLab from 16.0.
 * Source: GitLab's "OpenID Connect (OIDC) Authentication Using ID Tokens", the token's payload.
 */
export const GitLabClaims = Schema.Struct({
  namespace_id: Claims.Digits,
  namespace_path: Claims.claimText(/^[\w./-]{1,255}$/, "the path of a group or user"),
  project_id: Claims.Digits,
  project_path: Claims.claimText(/^[\w./-]{3,356}$/, "a string of the form group/project"),
  pipeline_id: Claims.Digits,
  pipeline_source: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the source of a pipeline"),
  ref: Claims.Ref,
  ref_type: Claims.claimText(/^(?:branch|tag)$/, "branch or tag"),
  ref_path: Schema.optionalKey(Claims.Ref),
  sha: Claims.Sha,
  user_login: Schema.optionalKey(Claims.Label),
  ci_config_ref_uri: Schema.optionalKey(Schema.NullOr(Claims.Label)),
  environment: Schema.optionalKey(Schema.NullOr(Claims.Label)),
})
type GitLabClaims = typeof GitLabClaims.Type

const mergeRequestRef = /^refs\/merge-requests\/([1-9][0-9]{0,8})\/(?:head|merge|train)$/
/** The configuration of a pipeline: `gitlab.com/group/project//.gitlab-ci.yml`. */
const configForm = /^[^/]+\/(.+?)\/\/(.+)$/

/** The file of a pipeline's configuration as `group/project/path`; `null` when it is not in a repository. */
const configFile = ({ ci_config_ref_uri: uri }: GitLabClaims, refPath: string, sha: string) => {
  const file = Claims.fileOfReference(uri ?? undefined, [refPath, sha])
  const [, project, path] = file === null ? [] : (configForm.exec(file) ?? [])
  return project === undefined ? null : `${project}/${path}`
}

/**
 * The run of a GitLab token: a pipeline. A merge request, a tag, a schedule, and a pipeline that a person, a trigger or
 * another pipeline started are previews. The pipeline of a merge request from a fork names the fork as its project.
 */
const runFromGitLab = (claims: GitLabClaims): Result.Result<ClaimedRun, Unauthorized> => {
  const { namespace_path: owner, pipeline_source: eventName, ref, ref_type: refType, sha } = claims
  const repository = Claims.splitRepository(claims.project_path)
  if (repository === undefined) {
    return Claims.refuse(`The token's claim "project_path" must have the form group/project.`)
  }
  if (repository.owner !== owner) {
    return Claims.refuse(`The token's claims "project_path" and "namespace_path" name different groups.`)
  }
  if (ref === "") return Claims.refuse(`The token's claim "ref" names no branch or tag.`)
  const refPath = Claims.orNull(claims.ref_path) ?? `refs/${refType === "tag" ? "tags" : "heads"}/${ref}`
  const mergeRequest = mergeRequestRef.exec(refPath)
  const isPush = eventName === "push" && refType === "branch" && refPath === `refs/heads/${ref}`
  return Result.succeed({
    ...repository,
    ownerId: claims.namespace_id,
    repositoryId: claims.project_id,
    branch: ref,
    ref: refPath,
    sha,
    preview: !isPush,
    pullRequest: mergeRequest === null ? null : Number(mergeRequest[1]),
    runId: claims.pipeline_id,
    runAttempt: 1,
    workflow: null,
    workflowFile: configFile(claims, refPath, sha),
    actor: Claims.orNull(claims.user_login),
    eventName,
    environment: Claims.orNull(claims.environment),
  })
}

export const readGitLab = Claims.reader(GitLabClaims, runFromGitLab)
