import { Result, Schema } from "effect"
import type { Unauthorized } from "../../Errors.ts"
import type { ClaimedRun, ReadRun } from "../CiRun.ts"
import type { PinFault, Pins } from "../../projects/RepositoryLink.ts"
import * as Claims from "./claimReaders.ts"

/** A UUID of Bitbucket, which its tokens write in braces. */
const Uuid = Claims.claimText(/^\{?[0-9a-fA-F-]{32,36}\}?$/, "a UUID")

/**
 * The claims of a Bitbucket Pipelines token that the service uses. They name no commit, no event and no person.
 * Source: Atlassian's "Integrate Pipelines with resource servers using OIDC".
 */
const BitbucketClaims = Schema.Struct({
  workspaceUuid: Uuid,
  repositoryUuid: Uuid,
  pipelineUuid: Uuid,
  branchName: Claims.optional(Claims.Ref),
  deploymentEnvironmentUuid: Claims.optional(Uuid),
})

const bare = (uuid: string) => uuid.replace(/[{}]/g, "").toLowerCase()

/** The issuer of a workspace; its name is the owner. */
const bitbucketIssuer = /\/workspaces\/([\w.-]{1,100})\/pipelines-config\/identity\/oidc$/

/**
 * Reads the run of a Bitbucket token. The workspace's name comes from the issuer, and the repository is named by its
 * UUID, because the token has no name of it. A run on a branch counts as a push. A run without a branch (a tag) is
 * refused.
 */
const readBitbucket = (issuer: string): ReadRun => {
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
      previewReason: null,
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

/** How the service reads the tokens of a known provider. */
interface Preset {
  /** The provider's own issuer; `undefined`: each customer has another one. */
  readonly issuer: string | undefined
  /** An example of an issuer, for messages. */
  readonly example: string
  /** Whether an issuer has the form of this provider. */
  readonly isIssuer: (issuer: string) => boolean
  /** Whether the provider decides the audience, so that `OIDC_AUDIENCE` cannot be right. */
  readonly hasOwnAudience: boolean
  /** The address of the keys of the provider's own issuer; absent: its discovery document names them. */
  readonly jwks?: string
  readonly read: (issuer: string) => ReadRun
  readonly pinFault: PinFault
}

const anyIssuer = () => true

/** A rule of one pin: the values that a token can have, and what they look like. */
type PinRule = readonly [form: RegExp, expected: string] | "never"

/** The fault of pins by a rule for each: a token can have no value of another form. */
const pinRules =
  (rules: { readonly [Pin in keyof Pins]: PinRule }): PinFault =>
  (pins) => {
    for (const pin of ["workflow", "environment"] as const) {
      const [rule, value] = [rules[pin], pins[pin]]
      if (value === null) continue
      if (rule === "never") return `${pin} cannot be pinned: tokens of this provider name no ${pin}.`
      if (!rule[0].test(value)) return `${pin} must be ${rule[1]}; no token has another form.`
    }
    return undefined
  }

/** The path of GitHub's keys under its issuer, and of those of issuers without a discovery document. */
export const keysPath = "/.well-known/jwks"

const presets = {
  github: {
    issuer: "https://token.actions.githubusercontent.com",
    example: "https://github.example.com/_services/token",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    jwks: `https://token.actions.githubusercontent.com${keysPath}`,
    read: () => readGitHub,
    pinFault: pinRules({
      workflow: [
        /^(?:[\w.-]{1,100}\/[\w.-]{1,100}\/)?\.github\/workflows\/[^/\p{Cc}]+\.ya?ml$/u,
        "a file such as .github/workflows/deploy.yml, or owner/repo/.github/workflows/deploy.yml for a reusable workflow, " +
          "without @ref",
      ],
      environment: [
        /^[^\p{Cc}\s](?:[^\p{Cc}]{0,253}[^\p{Cc}\s])?$/u,
        "the name of an environment, of 1 to 255 characters",
      ],
    }),
  },
  gitlab: {
    issuer: "https://gitlab.com",
    example: "https://gitlab.example.com",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    read: () => readGitLab,
    pinFault: pinRules({
      workflow: [
        /^(?!\.{0,2}\/)(?!.*(?:\/\/|\.ya?ml@))[^\p{Cc}]*[^\p{Cc}/]$/u,
        "a file such as .gitlab-ci.yml, or group/project/path for a file of another project, without @ref",
      ],
      environment: [/^[\w/${}. -]{1,255}$/, "1 to 255 letters, digits, spaces, or characters of -_/${}."],
    }),
  },
  bitbucket: {
    issuer: undefined,
    example: "https://api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc",
    isIssuer: (issuer) => bitbucketIssuer.test(issuer),
    hasOwnAudience: false,
    read: readBitbucket,
    pinFault: pinRules({
      workflow: "never",
      environment: [/^[0-9a-f-]{32,36}$/, "the UUID of a deployment environment, in lower case and without braces"],
    }),
  },
  circleci: {
    issuer: undefined,
    example: "https://oidc.circleci.com/org/8a1fdada-cbc0-452c-81ce-07534945e18b",
    isIssuer: anyIssuer,
    hasOwnAudience: true,
    read: () => readCircleCI,
    pinFault: pinRules({
      workflow: [/^[\x21-\x7e]{1,255}$/, "the id of a pipeline definition"],
      environment: "never",
    }),
  },
  buildkite: {
    issuer: "https://agent.buildkite.com",
    example: "https://agent.buildkite.com",
    isIssuer: anyIssuer,
    hasOwnAudience: false,
    read: () => readBuildkite,
    pinFault: pinRules({
      workflow: [/^[^\p{Cc}]+$/u, "the key of a step"],
      environment: "never",
    }),
  },
} satisfies Record<string, Preset>

type PresetName = keyof typeof presets
export const presetNames = Object.keys(presets) as ReadonlyArray<PresetName>
export const presetOf = (name: PresetName): Preset => presets[name]

/**
 * The claims of a GitHub Actions OIDC token that the service uses. `head_ref` is an empty string outside pull requests.
 * Source: GitHub's "OpenID Connect reference", the token's payload.
 */
export const GitHubClaims = Schema.Struct({
  repository: Claims.claimText(/^[\w./-]{1,201}$/, "a string of the form owner/name"),
  repository_id: Claims.Digits,
  repository_owner: Claims.claimText(/^[\w.-]{1,100}$/, "the name of the repository's owner"),
  repository_owner_id: Claims.optional(Claims.Digits),
  ref: Claims.Ref,
  sha: Claims.Sha,
  event_name: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the name of an event"),
  run_id: Claims.Digits,
  run_attempt: Claims.Attempt,
  head_ref: Claims.optional(Claims.Ref),
  workflow: Claims.optional(Claims.Label),
  workflow_ref: Claims.optional(Claims.Label),
  job_workflow_ref: Claims.optional(Claims.Label),
  actor: Claims.optional(Claims.Label),
  environment: Claims.optional(Claims.Label),
})
export type GitHubClaims = typeof GitHubClaims.Type

/**
 * The file of a reference such as `octo-org/shared/.github/workflows/deploy.yml@refs/tags/deploy@1.2.0`. A workflow is
 * directly in its folder, so its name has no slash, and the ref begins at the first `@refs/`; a ref without it is a
 * commit.
 */
const githubFile = (reference: string | null | undefined): string | null => {
  if (!reference) return null
  const atRef = reference.indexOf("@refs/")
  const end = atRef === -1 ? reference.lastIndexOf("@") : atRef
  return end === -1 ? reference : reference.slice(0, end)
}

const repositoryForm = /^([\w.-]{1,100})\/([\w.-]{1,100})$/
const pullRequestRef = /^refs\/pull\/([1-9][0-9]{0,8})\/(?:merge|head)$/

/**
 * The run of a GitHub token. Fails when `repository` and `repository_owner` disagree, for `pull_request_target`, and
 * for a run without a branch or tag. Every run but a push to a branch is a preview: its ref can be chosen by a
 * stranger, or is not a branch.
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
    previewReason: Claims.previewReason(eventName === "push" && Claims.isBranchRef(ref), eventName, ref),
    pullRequest: pullRequest === null ? null : Number(pullRequest[1]),
    runId: claims.run_id,
    runAttempt: Number(claims.run_attempt),
    workflow: Claims.orNull(claims.workflow),
    workflowFile: githubFile(claims.job_workflow_ref || claims.workflow_ref),
    actor: Claims.orNull(claims.actor),
    eventName,
    environment: Claims.orNull(claims.environment),
  })
}

export const readGitHub = Claims.reader(GitHubClaims, runFromGitHub)

/**
 * The claims of a GitLab ID token that the service uses, of GitLab.com and of self-managed GitLab from 16.0.
 * Source: GitLab's "OpenID Connect (OIDC) Authentication Using ID Tokens", the token's payload.
 */
const GitLabClaims = Schema.Struct({
  namespace_id: Claims.Digits,
  namespace_path: Claims.claimText(/^[\w./-]{1,255}$/, "the path of a group or user"),
  project_id: Claims.Digits,
  project_path: Claims.claimText(/^[\w./-]{3,356}$/, "a string of the form group/project"),
  pipeline_id: Claims.Digits,
  pipeline_source: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the source of a pipeline"),
  ref: Claims.Ref,
  ref_type: Claims.claimText(/^(?:branch|tag)$/, "branch or tag"),
  ref_path: Claims.optional(Claims.Ref),
  sha: Claims.Sha,
  user_login: Claims.optional(Claims.Label),
  ci_config_ref_uri: Claims.optional(Claims.Label),
  environment: Claims.optional(Claims.Label),
})
type GitLabClaims = typeof GitLabClaims.Type

const mergeRequestRef = /^refs\/merge-requests\/([1-9][0-9]{0,8})\/(?:head|merge|train)$/
/** The configuration of a pipeline: `gitlab.com/group/project//.gitlab-ci.yml`. */
const configForm = /^[^/]+\/([^/]+(?:\/[^/]+)*)\/\/(.+)$/

/** The file of a pipeline's configuration as `group/project/path`; `null` when it is not in a repository. */
const configFile = ({ ci_config_ref_uri: uri }: GitLabClaims, refPath: string, sha: string) => {
  const file = Claims.fileOfReference(uri, [refPath, sha])
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
    previewReason: Claims.previewReason(isPush, eventName, refPath),
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

const readGitLab = Claims.reader(GitLabClaims, runFromGitLab)

const claim = <const Name extends string>(name: Name) => `oidc.circleci.com/${name}` as const

/**
 * The claims of CircleCI's `$CIRCLE_OIDC_TOKEN_V2` that the service uses. They name no event; the commit since 2025.
 * Source: CircleCI's "Using OpenID Connect tokens in jobs", the format of the token.
 */
const CircleCIClaims = Schema.Struct({
  iat: Schema.Int,
  [claim("project-id")]: Claims.OpaqueId,
  [claim("vcs-origin")]: Claims.claimText(/^[\w./:-]{1,400}$/, "the address of a repository"),
  [claim("vcs-ref")]: Claims.Ref,
  [claim("vcs-sha")]: Claims.optional(Claims.Label),
  [claim("ssh-rerun")]: Claims.optional(Schema.Boolean),
  [claim("workflow-id")]: Claims.optional(Claims.OpaqueId),
  [claim("pipeline-id")]: Claims.optional(Claims.OpaqueId),
  [claim("pipeline-definition-id")]: Claims.optional(Claims.OpaqueId),
})
type CircleCIClaims = typeof CircleCIClaims.Type

/** `github.com/owner/name`, also as a URL. */
const originForm = /^(?:https?:\/\/)?[\w.:-]+\/(.+?)(?:\.git)?$/
const changeRequestRef = /^refs\/(?:pull|merge-requests)\/([1-9][0-9]{0,8})\//

/**
 * The run of a CircleCI token. Builds of forks run in the same CircleCI project and differ by the repository, so both
 * make up the identity. A run on a branch counts as a push. A job that a person reran with SSH is refused: anyone with
 * access to the job's machine can use its token.
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
  const pullRequest = changeRequestRef.exec(ref)
  return Result.succeed({
    ...repository,
    ownerId: null,
    repositoryId: `${claims[claim("project-id")]} ${origin.toLowerCase()}`,
    branch,
    ref,
    sha: Claims.commitOf(claims[claim("vcs-sha")]),
    previewReason: Claims.previewReason(Claims.isBranchRef(ref), "other", ref),
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

const readCircleCI = Claims.reader(CircleCIClaims, runFromCircleCI)

const Slug = Claims.claimText(/^[\w.-]{1,100}$/, "a slug of letters, digits, dots, hyphens or underscores")

/**
 * The claims of a Buildkite token that the service uses. `organization_id` and `pipeline_id` are optional in Buildkite:
 * slugs can be reused, so the service needs the ids.
 * Source: Buildkite's "buildkite-agent oidc", claims and optional claims.
 */
const BuildkiteClaims = Schema.Struct({
  organization_slug: Slug,
  organization_id: Claims.OpaqueId,
  pipeline_slug: Slug,
  pipeline_id: Claims.OpaqueId,
  build_number: Schema.Union([
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
    Claims.Digits,
  ]),
  build_branch: Claims.Ref,
  build_tag: Claims.optional(Claims.Ref),
  build_commit: Claims.optional(Claims.Label),
  build_source: Claims.claimText(/^[a-z][a-z0-9_]{0,63}$/, "the source of a build"),
  step_key: Claims.optional(Claims.Label),
})
type BuildkiteClaims = typeof BuildkiteClaims.Type

/**
 * The run of a Buildkite token: a build. The pipeline is the repository, because the token names no other. Only a build
 * that a webhook started for a branch is no preview. A branch with a colon is a fork's (`stranger:main`).
 */
const runFromBuildkite = (claims: BuildkiteClaims): Result.Result<ClaimedRun, Unauthorized> => {
  const { build_branch: branch, build_source: eventName } = claims
  const tag = Claims.orNull(claims.build_tag)
  if (branch === "" && tag === null) return Claims.refuse(`The token's claim "build_branch" names no branch.`)
  // A git branch has no colon: Buildkite writes one between the owner of a fork and its branch.
  const isPush = eventName === "webhook" && tag === null && !branch.includes(":")
  const ref = tag === null ? `refs/heads/${branch}` : `refs/tags/${tag}`
  return Result.succeed({
    owner: claims.organization_slug,
    repo: claims.pipeline_slug,
    ownerId: claims.organization_id,
    repositoryId: claims.pipeline_id,
    branch: tag ?? branch,
    ref,
    // A build of HEAD has no hash yet.
    sha: Claims.commitOf(claims.build_commit),
    previewReason: Claims.previewReason(isPush, eventName, ref),
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

const readBuildkite = Claims.reader(BuildkiteClaims, runFromBuildkite)
