import { Schema } from "effect"
import { Unavailable } from "../Errors.ts"
import { limits, type OrgLimitName, orgLimitNames } from "./OrgLimits.ts"
import { type Search, searchQuery } from "../Page.ts"
import { ownerFormat, parseOwner } from "../RepositoryOwner.ts"
import { atMost, CreatedAt, Id, KeyPrefix, Name, OrgId, Text, whole } from "../Schemas.ts"

/** An org: the tenant that owns projects, keys and webhook endpoints. */
export const Org = Schema.Struct({
  orgId: OrgId,
  name: Schema.String.annotate({ description: "The name of the org.", examples: ["Acme"] }),
  createdAt: CreatedAt,
}).annotate({ identifier: "Org" })
export interface Org extends Schema.Schema.Type<typeof Org> {}

export const CreateOrg = Schema.Struct({
  name: Name.annotate({ description: "The name of the org.", examples: ["Acme"] }),
}).annotate({ identifier: "CreateOrg" })

/** The filters of the list of orgs. */
export const orgFilters = {
  ...searchQuery,
  owns: Schema.optionalKey(
    Id.annotate({
      description:
        "The id of something that the org has: a project, deployment, API key, endpoint, event, delivery, job or schedule.",
    }),
  ),
}

/** Which orgs a list has. */
export interface OrgFilter extends Search {
  readonly owns?: string | undefined
}

const amounts = <S extends Schema.Top>(field: (name: OrgLimitName) => S) =>
  Object.fromEntries(orgLimitNames.map((name) => [name, field(name)])) as { readonly [Name in OrgLimitName]: S }

const limitText = (name: OrgLimitName) => `How many ${limits[name].unit} the org may have.`
const usageTexts: Readonly<Record<OrgLimitName, string>> = {
  projects: "The number of its projects.",
  keys: "The number of its API keys.",
  endpoints: "The number of its webhook endpoints.",
  schedules: "The number of its schedules.",
  unfinishedJobs: "The number of its queued and running jobs.",
  pendingDeliveries: "The number of its pending deliveries.",
  storedBytes:
    "Bytes of jobs, schedules, events, deliveries and attempts, each with a cost for its row, of documentation, and, some minutes later, of everything else.",
}

const maxOwners = 100

/** Owners of repositories, as `provider:owner`, or `owner` for GitHub. */
const Owners = Schema.Array(
  Text.check(
    // A provider, a colon and an owner.
    atMost(320),
    Schema.makeFilter((text: string) => parseOwner(text) !== undefined, {
      expected: "an owner of repositories, as owner for GitHub or provider:owner, such as gitlab:acme",
      toJsonSchema: () => [{ pattern: ownerFormat }, true],
    }),
  ),
)
  .check(Schema.isMaxLength(maxOwners, { expected: `at most ${maxOwners} owners` }))
  .annotate({
    description:
      "The owners of repositories that belong to the org: owner for GitHub, provider:owner for others. Compared without " +
      "case. An owner belongs to one org. Their runs may register, and get their projects in this org.",
    examples: [["octo-org", "gitlab:acme"]],
  })

/** An org with its limits and its usage. */
export const OrgDetail = Schema.Struct({
  ...Org.fields,
  owners: Owners,
  keyPrefix: Schema.NullOr(Schema.String).annotate({
    description: "The prefix of new keys of the org, and of its projects without one of their own. null: svc.",
    examples: ["acme_live"],
  }),
  retentionDays: Schema.NullOr(Schema.Int).annotate({
    description:
      "How many days events and finished jobs are kept, if that is less than RETENTION_DAYS. null: RETENTION_DAYS.",
    examples: [null],
  }),
  strictEvents: Schema.Boolean.annotate({
    description: "Whether events must be of a type of the catalogue, with data that is valid for its newest schema.",
  }),
  limits: Schema.Struct(
    amounts((name) => Schema.Int.annotate({ description: limitText(name), examples: [limits[name].defaultValue] })),
  ).annotate({
    identifier: "OrgLimits",
    description: "The limits of the org.",
  }),
  used: Schema.Struct(amounts((name) => Schema.Int.annotate({ description: usageTexts[name] }))).annotate({
    identifier: "OrgUsage",
    description: "The usage of each limit. Numbers above 10,000 and storedBytes can be some seconds old.",
  }),
}).annotate({ identifier: "OrgDetail" })
export interface OrgDetail extends Schema.Schema.Type<typeof OrgDetail> {}

/** The most days of a retention. */
export const maxRetentionDays = 36_500
/** The largest value of a limit. JSON numbers are exact up to it. */
const maxLimit = 10 ** 15
const Limit = Schema.NullOr(whole(0, maxLimit))

const isNotEmpty = Schema.makeFilter((change: object) => Object.keys(change).length > 0, {
  expected: "at least one field",
  toJsonSchema: () => ({ minProperties: 1 }),
})

/** The changes of an org. An absent field does not change. */
export const UpdateOrg = Schema.Struct({
  name: Schema.optionalKey(CreateOrg.fields.name),
  owners: Schema.optionalKey(Owners),
  keyPrefix: Schema.optionalKey(Schema.NullOr(KeyPrefix)).annotate({
    description: "The prefix of new keys of the org, and of its projects without one of their own. null: svc.",
  }),
  retentionDays: Schema.optionalKey(
    Schema.NullOr(whole(1, maxRetentionDays)).annotate({
      description:
        "How many days events and finished jobs are kept. RETENTION_DAYS is the maximum: a larger number changes nothing. " +
        "null: RETENTION_DAYS.",
      examples: [30],
    }),
  ),
  strictEvents: Schema.optionalKey(Schema.Boolean).annotate({
    description:
      "true: events must be of a type of the catalogue (event-types), with data that is valid for its newest schema.",
  }),
  limits: Schema.optionalKey(
    Schema.Struct(
      amounts((name) =>
        Schema.optionalKey(
          Limit.annotate({
            description: `${limitText(name)} null: the default of the service.`,
            examples: [limits[name].defaultValue],
          }),
        ),
      ),
    )
      .check(isNotEmpty)
      .annotate({
        identifier: "UpdateOrgLimits",
        description: "The limits to change. null: the default of the service.",
      }),
  ),
})
  .check(isNotEmpty)
  .annotate({ identifier: "UpdateOrg" })
export type UpdateOrg = typeof UpdateOrg.Type

/** What a write of an org gets whose row was deleted after the request was let in. The next request is refused. */
export const orgDeleted = new Unavailable({ error: "The org was deleted during this request." })
