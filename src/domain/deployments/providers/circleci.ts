import { Result, Schema } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ClaimedRun } from "../CiRun.ts"
import * as Claims from "./claims.ts"

const claim = <const Name extends string>(name: Name) => `oidc.circleci.com/${name}` as const

/**
 * The claims of CircleCI's `$CIRCLE_OIDC_TOKEN_V2` that the service uses. They name no commit and no event.
 * Source: CircleCI's "Using OpenID Connect tokens in jobs", the format of the token.
 */
export const CircleCIClaims = Schema.Struct({
  iat: Schema.Int,
  [claim("project-id")]: Claims.OpaqueId,
  [claim("vcs-origin")]: Claims.claimText(/^[\w./:-]{1,400}$/, "the address of a repository"),
  [claim("vcs-ref")]: Claims.Ref,
  [claim("ssh-rerun")]: Schema.optionalKey(Schema.Boolean),
  [claim("workflow-id")]: Schema.optionalKey(Claims.OpaqueId),
  [claim("pipeline-id")]: Schema.optionalKey(Claims.OpaqueId),
  [claim("pipeline-definition-id")]: Schema.optionalKey(Claims.OpaqueId),
})
type CircleCIClaims = typeof CircleCIClaims.Type

/** `github.com/owner/name`, also as a URL. */
const originForm = /^(?:https?:\/\/)?[\w.:-]+\/(.+?)(?:\.git)?$/
const pullRequestRef = /^refs\/(?:pull|merge-requests)\/([1-9][0-9]{0,8})\//

/**
 * The run of a CircleCI token. Builds of forks run in the same CircleCI project and differ by the repository, so both make
 * up the identity. A run on a branch counts as a push. A job that a person reran with SSH is refused: anyone with access to
 * the job's machine can use its token.
 */
const runFromCircleCI = (claims: CircleCIClaims): Result.Result<ClaimedRun, Unauthorized> => {
  const origin = claims[claim("vcs-origin")]
  const ref = claims[claim("vcs-ref")]
  if (claims[claim("ssh-rerun")] === true) {
    return Claims.refuse("Jobs that were rerun with SSH are not registered: a person can use their token.")
  }
  const [, path] = originForm.exec(origin) ?? []
  const repository = path === undefined ? undefined : Claims.splitRepository(path)
  if (repository === undefined) {
    return Claims.refuse(`The token's claim "${claim("vcs-origin")}" must have the form host/owner/name.`)
  }
  const branch = Claims.branchOf(ref)
  if (branch === "") return Claims.refuse(`The token's claim "${claim("vcs-ref")}" names no branch or tag.`)
  const pullRequest = pullRequestRef.exec(ref)
  return Result.succeed({
    ...repository,
    ownerId: null,
    repositoryId: `${claims[claim("project-id")]} ${origin.toLowerCase()}`,
    branch,
    ref,
    sha: "",
    preview: !Claims.isBranchRef(ref),
    pullRequest: pullRequest === null ? null : Number(pullRequest[1]),
    runId: claims[claim("workflow-id")] ?? claims[claim("pipeline-id")] ?? `issued-${claims.iat}`,
    runAttempt: 1,
    workflow: null,
    workflowFile: claims[claim("pipeline-definition-id")] ?? null,
    actor: null,
    eventName: Claims.isBranchRef(ref) ? "push" : "other",
    environment: null,
  })
}

export const readCircleCI = Claims.reader(CircleCIClaims, runFromCircleCI)
