import { Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

/** What is written down: every operation that changes what an org has or who may use it. */
export const AuditAction = Schema.Literals([
  "org.create",
  "org.update",
  "project.create",
  "project.update",
  "key.create",
  "key.rotate",
  "key.delete",
  "webhook_endpoint.create",
  "webhook_endpoint.update",
  "webhook_endpoint.delete",
  "webhook_endpoint.deactivate",
  "schedule.create",
  "schedule.delete",
])
export type AuditAction = typeof AuditAction.Type

/** One change that was made: by whom, when, of what. */
export const AuditEntry = Schema.Struct({
  id: Id,
  at: Timestamp,
  actor: Schema.String.annotate({
    description:
      "administrator; key:<id> of an API key; anonymous: open mode, without a credential; service: Gatehouse itself.",
    examples: ["administrator", "key:01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
  action: AuditAction.annotate({ examples: ["key.create"] }),
  target: Id.annotate({ description: "The id of what was changed." }),
  details: Schema.Record(Schema.String, Schema.Unknown).annotate({
    description: "What the change was, without secrets; its fields depend on the action.",
    examples: [{ name: "ci" }],
  }),
  requestId: Schema.NullOr(Schema.String).annotate({
    description: "The x-request-id of the request that made the change.",
    examples: ["3d1f6c1e-6d3b-4a6e-9a58-0c1f3a3a7e02"],
  }),
}).annotate({ identifier: "AuditEntry" })
export interface AuditEntry extends Schema.Schema.Type<typeof AuditEntry> {}
