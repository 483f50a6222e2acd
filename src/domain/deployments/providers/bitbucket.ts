import { Result, Schema } from "effect"
import type { ReadRun } from "../CiRun.ts"
import * as Claims from "./claims.ts"

/** A UUID of Bitbucket, which its tokens write in braces. */
const Uuid = Claims.claimText(/^\{?[0-9a-fA-F-]{32,36}\}?$/, "a UUID")

/**
 * The claims of a Bitbucket Pipelines token that the service uses. They name no commit, no event and no person.
 * Source: Atlassian's "Integrate Pipelines with resource servers using OIDC".
 */
export const BitbucketClaims = Schema.Struct({
  workspaceUuid: Uuid,
  repositoryUuid: Uuid,
  pipelineUuid: Uuid,
  branchName: Schema.optionalKey(Schema.NullOr(Claims.Ref)),
  deploymentEnvironmentUuid: Schema.optionalKey(Schema.NullOr(Uuid)),
})

const bare = (uuid: string) => uuid.replace(/[{}]/g, "").toLowerCase()

/** The issuer of a workspace; its name is the owner. */
export const bitbucketIssuer = /\/workspaces\/([\w.-]{1,100})\/pipelines-config\/identity\/oidc$/

/**
 * Reads the run of a Bitbucket token. The workspace's name comes from the issuer, and the repository is named by its UUID,
 * because the token has no name of it. A run on a branch counts as a push. A run without a branch (a tag) is refused.
 */
export const readBitbucket = (issuer: string): ReadRun => {
  const workspace = bitbucketIssuer.exec(issuer)?.[1]
  return Claims.reader(BitbucketClaims, ({ branchName, ...claims }) => {
    const branch = Claims.orNull(branchName)
    if (branch === null) return Claims.refuse(`The token's claim "branchName" names no branch.`)
    return Result.succeed({
      owner: workspace ?? bare(claims.workspaceUuid),
      repo: bare(claims.repositoryUuid),
      ownerId: bare(claims.workspaceUuid),
      repositoryId: bare(claims.repositoryUuid),
      branch,
      ref: `refs/heads/${branch}`,
      sha: "",
      preview: false,
      pullRequest: null,
      runId: bare(claims.pipelineUuid),
      runAttempt: 1,
      workflow: null,
      workflowFile: null,
      actor: null,
      eventName: "push",
      environment: claims.deploymentEnvironmentUuid ? bare(claims.deploymentEnvironmentUuid) : null,
    })
  })
}
