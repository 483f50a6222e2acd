import { Schema } from "effect"
import { limits, type OrgLimitName, orgLimitNames } from "./OrgLimits.ts"
import { Id, Name, Timestamp } from "../Schemas.ts"

/** An org: the tenant that projects, keys and webhook endpoints belong to. */
export const Org = Schema.Struct({
  orgId: Id,
  name: Schema.String.annotate({ examples: ["Acme"] }),
  createdAt: Timestamp,
}).annotate({ identifier: "Org" })
export interface Org extends Schema.Schema.Type<typeof Org> {}

export const CreateOrg = Schema.Struct({
  name: Name.annotate({ description: "What people call the org.", examples: ["Acme"] }),
}).annotate({ identifier: "CreateOrg" })

const amounts = <S extends Schema.Top>(field: (name: OrgLimitName) => S) =>
  Object.fromEntries(orgLimitNames.map((name) => [name, field(name)])) as { readonly [Name in OrgLimitName]: S }

/** An org with its limits, and how much of each it has. */
export const OrgDetail = Schema.Struct({
  ...Org.fields,
  limits: Schema.Struct(amounts(() => Schema.Int)).annotate({
    identifier: "OrgLimits",
    description: "How much the org may have.",
  }),
  used: Schema.Struct(amounts(() => Schema.Int)).annotate({
    identifier: "OrgUsage",
    description: "How much the org has. Numbers past 10,000 may be some seconds old, and so may storedBytes.",
  }),
}).annotate({ identifier: "OrgDetail" })
export interface OrgDetail extends Schema.Schema.Type<typeof OrgDetail> {}

/** The largest limit: whole numbers are exact up to it. */
const maxLimit = 10 ** 15
const Limit = Schema.NullOr(
  Schema.Int.check(
    Schema.isBetween({ minimum: 0, maximum: maxLimit }, { expected: `a whole number from 0 to ${maxLimit}` }),
  ),
)

const isNotEmpty = Schema.makeFilter((change: object) => Object.keys(change).length > 0, {
  expected: "at least one field",
})

/** The changes of an org. A field that is absent stays as it is. */
export const UpdateOrg = Schema.Struct({
  name: Schema.optionalKey(Name.annotate({ examples: ["Acme"] })),
  limits: Schema.optionalKey(
    Schema.Struct(amounts((name) => Schema.optionalKey(Limit.annotate({ examples: [limits[name].defaultValue] }))))
      .check(isNotEmpty)
      .annotate({
        identifier: "UpdateOrgLimits",
        description: "The limits that change. null: the default of the service again.",
      }),
  ),
})
  .check(isNotEmpty)
  .annotate({ identifier: "UpdateOrg" })
export type UpdateOrg = typeof UpdateOrg.Type
