import { Context, Schema } from "effect"
import { atMost, NonEmptyText, Text } from "../Schemas.ts"
import { namePattern, ownerPattern } from "../RepositoryOwner.ts"

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

/** The fault of pins that no token of the provider can meet, as a sentence that names the field. */
export type PinFault = (pins: Pins) => string | undefined

/** What links depend on: the CI providers that the operator has configured. */
export interface LinkRules {
  /**
   * The issuer of each provider's name. Names of owners and repositories are trusted from this issuer only: two issuers
   * with one name have different people behind the same owner.
   */
  readonly issuers: ReadonlyMap<string, string>
  /** The fault of pins that no token of a provider can meet. */
  readonly pinFault: (provider: string, pins: Pins) => string | undefined
}
export class LinkPolicy extends Context.Service<LinkPolicy, LinkRules>()("gatehouse/domain/LinkPolicy") {}
