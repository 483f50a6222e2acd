import { Schema } from "effect"
import { atMost, CreatedAt, Id, KeyPrefix, Name, NonEmptyText, OrgId, ProjectId, Text, UpdatedAt } from "../Schemas.ts"

export const Project = Schema.Struct({
  projectId: ProjectId,
  orgId: OrgId,
  name: Schema.String.annotate({ description: "The name of the project.", examples: ["docs"] }),
  subdomain: Schema.NullOr(Schema.String).annotate({
    description: "The DNS label of the project. null: none.",
    examples: ["docs-octo-org"],
  }),
  currentDeploymentId: Schema.NullOr(Id).annotate({
    description: "The id of the deployment in production. null: none is.",
  }),
  defaultBranch: Schema.NullOr(Schema.String).annotate({
    description: "The branch whose deployments become current. null: not known yet.",
    examples: ["main"],
  }),
  hostOwner: Schema.NullOr(Schema.String).annotate({
    description: "The owner of the linked repository. null: no repository is linked.",
    examples: ["octo-org"],
  }),
  hostRepo: Schema.NullOr(Schema.String).annotate({
    description: "The name of the linked repository. null: no repository is linked.",
    examples: ["docs"],
  }),
  keyPrefix: Schema.optionalKey(Schema.String).annotate({
    description: "The prefix of new keys of the project. Absent: that of its org.",
    examples: ["acme_live"],
  }),
  createdAt: CreatedAt,
  updatedAt: UpdatedAt,
}).annotate({ identifier: "Project" })
export interface Project extends Schema.Schema.Type<typeof Project> {}

export const CreateProject = Schema.Struct({
  name: Name.annotate({ description: "The name of the project.", examples: ["docs"] }),
  orgId: Schema.optionalKey(
    Id.annotate({
      description:
        "The org of the project. Absent: the org of the API key, else the default org, which is created when there is none.",
    }),
  ),
}).annotate({ identifier: "CreateProject" })

// With the flag u, the patterns are also in the OpenAPI document.
const dnsLabel = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/u
/** GitHub's rule for owners and repository names: letters, digits, dots, hyphens and underscores. */
const repositoryPart = /^[A-Za-z0-9._-]{1,100}$/u

const RepositoryPart = Text.check(
  Schema.isPattern(repositoryPart, { expected: "1 to 100 letters, digits, dots, hyphens or underscores" }),
)

// No ref has white space, so nothing would ever become current.
const branchName = Schema.isPattern(/^$|^\S+$/u, { expected: "the name of a branch, without white space" })

/** The changes of a project. An absent field does not change; `null` clears it. */
export const UpdateProject = Schema.Struct({
  name: Schema.optionalKey(CreateProject.fields.name),
  defaultBranch: Schema.optionalKey(
    Schema.NullOr(NonEmptyText.check(atMost(255), branchName)).annotate({
      description: "The branch whose deployments become current. null: not known yet.",
      examples: ["main"],
    }),
  ),
  subdomain: Schema.optionalKey(
    Schema.NullOr(
      Text.check(
        Schema.isPattern(dnsLabel, { expected: "a DNS label: 1 to 63 lower-case letters, digits or inner hyphens" }),
      ),
    ).annotate({ description: "The DNS label of the project. null: none.", examples: ["docs-octo-org"] }),
  ),
  hostOwner: Schema.optionalKey(
    Schema.NullOr(RepositoryPart).annotate({
      description: "The owner of the repository to link, with hostRepo. null: no repository is linked.",
      examples: ["octo-org"],
    }),
  ),
  hostRepo: Schema.optionalKey(
    Schema.NullOr(RepositoryPart).annotate({
      description: "The name of the repository to link, with hostOwner. null: no repository is linked.",
      examples: ["docs"],
    }),
  ),
  keyPrefix: Schema.optionalKey(Schema.NullOr(KeyPrefix)).annotate({
    description: "The prefix of new keys of the project. null: that of its org.",
  }),
})
  .check(
    Schema.makeFilter(
      (update: { readonly hostOwner?: string | null; readonly hostRepo?: string | null }) =>
        (update.hostOwner === undefined) === (update.hostRepo === undefined) &&
        (update.hostOwner === null) === (update.hostRepo === null),
      {
        expected: "hostOwner and hostRepo together, both text or both null",
        toJsonSchema: () => ({ dependentRequired: { hostOwner: ["hostRepo"], hostRepo: ["hostOwner"] } }),
      },
    ),
    Schema.makeFilter((update: object) => Object.keys(update).length > 0, {
      expected: "at least one of name, defaultBranch, subdomain, keyPrefix, hostOwner with hostRepo",
      toJsonSchema: () => ({ minProperties: 1 }),
    }),
  )
  .annotate({ identifier: "UpdateProject" })
export type UpdateProject = typeof UpdateProject.Type
