import { Schema } from "effect"
import { atMost, Id, OrgId, Text } from "../Schemas.ts"
import { pageQuery } from "../Page.ts"

/** What `find` looks for: resources by their names, and changes by the ids of their requests. */
const namedKinds = ["project", "key", "endpoint", "schedule", "change"] as const

/** Something that has a name in an org. */
export const Named = Schema.Struct({
  kind: Schema.Literals(namedKinds).annotate({ description: "What it is. change: an entry of the audit log." }),
  id: Id.annotate({ description: "Its id." }),
  name: Schema.String.annotate({
    description:
      "Its name; of an endpoint the description or the URL, of a schedule the workflow, of a change the action.",
    examples: ["Billing"],
  }),
  orgId: OrgId,
  orgName: Schema.String.annotate({ description: "The name of its org.", examples: ["Acme"] }),
}).annotate({ identifier: "Named" })
export interface Named extends Schema.Schema.Type<typeof Named> {}

/** The request of `find`. */
export const findQuery = {
  ...pageQuery,
  text: Text.check(Schema.isMinLength(1), atMost(255)).annotate({
    description: "A part of the name, of the external id, or of a key's prefix; or the whole id of a request.",
    examples: ["billing"],
  }),
}
