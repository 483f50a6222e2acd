import { Schema } from "effect"
import { atMost, NonEmptyText, Text } from "../Schemas.ts"
import type { CiRun } from "./CiRun.ts"
import { namePattern, ownerPattern } from "./providers/claims.ts"

const provider = Text.check(
  Schema.isPattern(/^[a-z0-9][a-z0-9-]{0,62}$/u, { expected: "the name of a CI provider, such as github" }),
)
const owner = Text.check(
  Schema.isPattern(ownerPattern, {
    expected: "the owner of a repository: letters, digits, dots, hyphens and underscores, with / between nested groups",
  }),
  atMost(255),
)
const repository = Text.check(
  Schema.isPattern(namePattern, { expected: "1 to 100 letters, digits, dots, hyphens or underscores" }),
  atMost(100),
)
const pin = NonEmptyText.check(atMost(1024))

const fields = {
  provider: provider.annotate({
    description: "The CI provider of the repository: github, or a name of OIDC_PROVIDERS.",
    examples: ["github"],
  }),
  hostOwner: owner.annotate({ description: "The owner of the repository.", examples: ["octo-org"] }),
  hostRepo: repository.annotate({ description: "The name of the repository.", examples: ["docs"] }),
}

const workflow = pin.annotate({
  description:
    "The only workflow whose runs may become current: a file of the repository (.github/workflows/deploy.yml), or " +
    "owner/repo/path for a reusable workflow. Other runs register as previews. null: any workflow.",
  examples: [".github/workflows/deploy.yml"],
})
const environment = pin.annotate({
  description: "The only environment whose runs may become current. Other runs register as previews. null: any.",
  examples: ["production"],
})

/** The link of a project to a repository, with its pins. */
export const RepositoryLink = Schema.Struct({
  ...fields,
  workflow: Schema.NullOr(workflow),
  environment: Schema.NullOr(environment),
}).annotate({ identifier: "RepositoryLink" })
export interface RepositoryLink extends Schema.Schema.Type<typeof RepositoryLink> {}

export const PutRepositoryLink = Schema.Struct({
  ...fields,
  workflow: Schema.optionalKey(Schema.NullOr(workflow)),
  environment: Schema.optionalKey(Schema.NullOr(environment)),
}).annotate({ identifier: "PutRepositoryLink" })
export type PutRepositoryLink = typeof PutRepositoryLink.Type

/** The conditions of a link on the runs that may become current. */
export type Pins = Pick<RepositoryLink, "workflow" | "environment">

/** Compares `owner/repo/path` with a pin that is such a text, or a path in the run's repository. */
const isSameFile = (file: string, pin: string, { owner, repo }: CiRun) => {
  const folder = `${owner}/${repo}/`
  return (
    isSamePath(file, pin) || (isSameText(file.slice(0, folder.length), folder) && file.slice(folder.length) === pin)
  )
}

const isSameText = (a: string, b: string) => a.toLowerCase() === b.toLowerCase()

/** Owners and repositories compare without case, and the path in the repository with it. */
const isSamePath = (file: string, pin: string) => {
  const start = /^[^/]+\/[^/]+\//.exec(pin)?.[0].length ?? 0
  return isSameText(file.slice(0, start), pin.slice(0, start)) && file.slice(start) === pin.slice(start)
}

/**
 * Why a run does not meet the pinned workflow and environment, in a sentence; `null` when it does. Only GitHub's names
 * of environments compare without case.
 */
export const unmetPin = (run: CiRun, { environment, workflow }: Pins): string | null => {
  if (workflow !== null && (run.workflowFile === null || !isSameFile(run.workflowFile, workflow, run))) {
    return `The link pins the workflow ${workflow}, and the run is of ${run.workflowFile ?? "none that its token names"}.`
  }
  const isMet =
    run.provider === "github"
      ? isSameText(run.environment ?? "", environment ?? "")
      : (run.environment ?? "") === (environment ?? "")
  if (environment === null || isMet) return null
  return `The link pins the environment ${environment}, and the run is in ${run.environment ?? "none"}.`
}
