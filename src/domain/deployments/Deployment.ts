import { Schema } from "effect"
import { DeploymentId, OrgId, ProjectId, time } from "../Schemas.ts"

/** The record of one CI run of a project. */
export const Deployment = Schema.Struct({
  id: DeploymentId,
  projectId: ProjectId,
  orgId: OrgId,
  provider: Schema.String.annotate({
    description:
      "The CI provider: github, gitlab, bitbucket, circleci, buildkite, or the name of an entry of OIDC_PROVIDERS.",
    examples: ["github"],
  }),
  branch: Schema.String.annotate({ description: "The branch or tag that was deployed.", examples: ["main"] }),
  ref: Schema.String.annotate({
    description: "The git ref of the run, such as refs/heads/main.",
    examples: ["refs/heads/main"],
  }),
  sha: Schema.String.annotate({
    description: "The commit. Empty when the provider's tokens do not name it (Bitbucket, CircleCI).",
    examples: ["6dcb09b5b57875f334f61aebed695e2e4193db5e"],
  }),
  preview: Schema.Boolean.annotate({
    description: "Whether the deployment is a preview, and not production.",
    examples: [false],
  }),
  previewReason: Schema.NullOr(Schema.String).annotate({
    description: "Why the deployment is a preview, in a sentence; null when it is none.",
    examples: [null],
  }),
  pullRequest: Schema.NullOr(Schema.Int).annotate({
    description: "The number of the pull request. null: the run is of none.",
    examples: [null],
  }),
  runId: Schema.String.annotate({ description: "The id of the run at its CI provider.", examples: ["1658821493"] }),
  runAttempt: Schema.Int.annotate({ description: "The attempt of the run, from 1." }),
  workflow: Schema.NullOr(Schema.String).annotate({
    description: "The name of the run's CI workflow. null: unknown.",
    examples: ["docs"],
  }),
  actor: Schema.NullOr(Schema.String).annotate({
    description: "Who started the run. null: unknown.",
    examples: ["octocat"],
  }),
  eventName: Schema.String.annotate({ description: "What started the run, such as push.", examples: ["push"] }),
  environment: Schema.NullOr(Schema.String).annotate({
    description: "The environment of the run. null: none.",
    examples: ["production"],
  }),
  createdAt: time("When the run was registered."),
}).annotate({ identifier: "Deployment" })
export interface Deployment extends Schema.Schema.Type<typeof Deployment> {}

/** Subdomains of a repository that have only a number. */
const maxNumbered = 10

const trimHyphens = (text: string) => text.replace(/^-+|(?<!-)-+$/g, "")

/**
 * The subdomain for the project of a repository: `<name>-<owner>` as a DNS label (RFC 1123: 1 to 63 lower-case letters,
 * digits or inner hyphens). Replaces other characters by single hyphens, so that no label has a reserved prefix such as
 * `xn--` (RFC 5891).
 *
 * @param n appends `-<n>` when above 1, for when the earlier subdomains are taken
 * @param id of the project, whose end comes before a larger `n`: others cannot take all subdomains of a repository
 */
export const subdomainFor = (owner: string, repo: string, n = 1, id = ""): string => {
  const label = trimHyphens(`${repo}-${owner}`.toLowerCase().replace(/[^a-z0-9]+/g, "-")) || "project"
  const own = n > maxNumbered ? id.slice(-8).toLowerCase() : ""
  const suffix = n > 1 ? `-${own}${n}` : ""
  return trimHyphens(label.slice(0, 63 - suffix.length)) + suffix
}

/** The answer to a CI run. `preview` is present only when it is `true`. */
export const Registration = Schema.Struct({
  ok: Schema.Boolean.annotate({ description: "true: the run is registered." }),
  projectId: Schema.optionalKey(Schema.String.annotate({ description: "The id of the project, a ULID." })),
  branch: Schema.optionalKey(
    Schema.String.annotate({
      description: "The head branch of a pull request, else the pushed branch or tag.",
    }),
  ),
  preview: Schema.optionalKey(
    Schema.Boolean.annotate({ description: "true: the deployment is a preview. Absent: it is not." }),
  ),
}).annotate({
  identifier: "Registration",
  examples: [{ ok: true, projectId: "01KAHBMKZ3D2X7S5QN8W4V6R9V", branch: "add-search", preview: true }],
})
export interface Registration extends Schema.Schema.Type<typeof Registration> {}
