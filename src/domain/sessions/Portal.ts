import { Schema } from "effect"
import { Id, time, whole } from "../Schemas.ts"
import { ExternalId, HolderKeys } from "../keys/KeySettings.ts"
import { Permission } from "../keys/Permission.ts"
import { Person } from "../Person.ts"

/** The permissions that a portal link can allow. Each open portal stores them. */
const maxPermissions = 20
const defaultMaxKeys = 5
/** How long a link can be opened if its request does not say. How long its portal stays open: Sessions.ts. */
export const defaultLinkSeconds = 3_600

/** What a portal session may use. */
export const PortalRights = Schema.Struct({ webhooks: Schema.Boolean, keys: Schema.NullOr(HolderKeys) })
export type PortalRights = typeof PortalRights.Type

const { externalId, maxKeys, permissions, projectId } = HolderKeys.fields

/** A portal link in a list. Its token is in no list. */
export const PortalLinkEntry = Schema.Struct({
  link_id: Id.annotate({
    description: "The id of the link, and of the portal that it opens: portal:<id> in the audit log.",
  }),
  state: Schema.Literals(["unopened", "open", "ended"]).annotate({
    description:
      "unopened: it can be opened. open: somebody opened it, and the portal is open. ended: by its time, or with the session, " +
      "key or token of who made it; it leaves the list within an hour of expires_at.",
    examples: ["open"],
  }),
  made_by: Schema.String.annotate({
    description: "Who made it, as the audit log names them.",
    examples: ["key:01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
  person: Schema.NullOr(Person).annotate({ description: "The person who made it. null: no person did." }),
  webhooks: Schema.Boolean.annotate({ description: "Whether its portal may use the webhooks of the org." }),
  keys: Schema.NullOr(
    Schema.Struct({ external_id: externalId, project_id: projectId, permissions, max_keys: maxKeys }).annotate({
      identifier: "PortalLinkKeys",
    }),
  ).annotate({ description: "What its portal may do with API keys. null: nothing." }),
  created_at: time("When the link was made, or opened."),
  expires_at: time("When the link, or the portal that it opened, ends at the latest."),
}).annotate({ identifier: "PortalLinkEntry" })
export type PortalLinkState = (typeof PortalLinkEntry.Type)["state"]

/** The lifetime of a portal link, one minute to a week, and what its session may use. */
export const CreatePortalLink = Schema.Struct({
  expires_in_seconds: Schema.optionalKey(whole(60, 604_800)).annotate({
    description: `How long the link can be opened, in seconds. Default: ${defaultLinkSeconds}.`,
    examples: [3600],
  }),
  webhooks: Schema.optionalKey(Schema.Boolean).annotate({
    description: "Whether its session may use the endpoints, deliveries and events of the org. Default: true.",
    examples: [true],
  }),
  keys: Schema.optionalKey(
    Schema.Struct({
      external_id: ExternalId,
      project_id: Schema.optionalKey(Id).annotate({
        description: "The project of new keys. Absent: keys of the org, with its rate limits and prefix.",
      }),
      permissions: Schema.optionalKey(
        Schema.Array(Permission).check(
          Schema.isMaxLength(maxPermissions, { expected: `a list of at most ${maxPermissions} permissions` }),
        ),
      ).annotate({ description: "What new keys may do at most. Default: nothing.", examples: [["files.*"]] }),
      max_keys: Schema.optionalKey(whole(1, 100)).annotate({
        description: `How many keys the holder may have, without those that were rotated. Default: ${defaultMaxKeys}.`,
        examples: [defaultMaxKeys],
      }),
    }).annotate({ identifier: "PortalKeys" }),
  ).annotate({
    description:
      "Allows the session to make, rename, rotate and delete the API keys of one holder, by your own id of it. Absent: no keys.",
  }),
}).annotate({ identifier: "CreatePortalLink" })
export type CreatePortalLink = typeof CreatePortalLink.Type

/** The keys that a link in a list allows. */
export const linkedKeys = ({ externalId, maxKeys, permissions, projectId }: HolderKeys) => ({
  external_id: externalId,
  project_id: projectId,
  permissions,
  max_keys: maxKeys,
})

/** The rights that a link asks for. */
export const rightsOf = ({ keys, webhooks = true }: CreatePortalLink): PortalRights => ({
  webhooks,
  keys:
    keys === undefined
      ? null
      : {
          externalId: keys.external_id,
          projectId: keys.project_id ?? null,
          permissions: keys.permissions ?? [],
          maxKeys: keys.max_keys ?? defaultMaxKeys,
        },
})
