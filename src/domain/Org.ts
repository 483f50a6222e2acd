import { Schema } from "effect"
import { Id, Name, Timestamp } from "./Schemas.ts"

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
