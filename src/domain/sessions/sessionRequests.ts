import { Schema } from "effect"
import { Id, Text, Timestamp } from "../Schemas.ts"

/** Who holds a session, or made a request. */
export const PrincipalKind = Schema.Literals(["administrator", "orgKey", "projectKey", "portal", "anonymous"]).annotate(
  {
    description: "anonymous: nobody has signed in, which open mode allows.",
    examples: ["orgKey"],
  },
)
export type PrincipalKind = typeof PrincipalKind.Type

const orNull = <S extends Schema.Constraint>(schema: S, description: string) =>
  Schema.NullOr(schema).annotate({ description })

/** The principal of a request, and what it may do. */
export const WhoAmI = Schema.Struct({
  principal: PrincipalKind,
  mode: Schema.Literals(["guarded", "open"]).annotate({ description: "The mode of the server." }),
  orgId: orNull(Id, "The org of the principal. null: every org.").annotate({
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
  projectId: orNull(Id, "The project of a project key.").annotate({ examples: [null] }),
  expiresAt: orNull(Timestamp, "The end of the session. null: the request has another credential, or none."),
  csrfToken: orNull(
    Schema.String,
    "A session sends it in x-csrf-token with every request that is not a GET. null: no session.",
  ).annotate({ examples: ["5f2b…"] }),
  operations: Schema.Array(Schema.String).annotate({
    description: "The operationIds that the principal may call. An operation may still refuse another org's resource.",
    examples: [["keys.list", "webhooks.list"]],
  }),
}).annotate({ identifier: "WhoAmI" })
export interface WhoAmI extends Schema.Schema.Type<typeof WhoAmI> {}

/** The lifetime of a portal link: one minute to a week. */
export const CreatePortalLink = Schema.Struct({
  expires_in_seconds: Schema.optionalKey(
    Schema.Int.check(
      Schema.isBetween({ minimum: 60, maximum: 604_800 }, { expected: "a whole number from 60 to 604800" }),
    ),
  ).annotate({ description: "How long the link can be opened, in seconds. Default: 3600.", examples: [3600] }),
}).annotate({ identifier: "CreatePortalLink" })

export const OpenPortal = Schema.Struct({
  token: Text.check(Schema.isMaxLength(200, { expected: "at most 200 characters" })).annotate({
    description: "The token after the # of a portal link.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T.mJ0W4c2v"],
  }),
}).annotate({ identifier: "OpenPortal" })
