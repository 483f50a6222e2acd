import { type DateTime, Schema } from "effect"
import { atMost, Id, Text, time } from "../Schemas.ts"
import { Person } from "../Person.ts"
import type { ServiceEvent } from "../ServiceEvent.ts"

/** The audited operations: all that change the resources of an org, or who may use them. */
const AuditAction = Schema.Literals([
  "org.create",
  "org.update",
  "org.delete",
  "org.erase",
  "project.create",
  "project.update",
  "project.delete",
  "project.link",
  "project.unlink",
  "deployment.promote",
  "docs.update",
  "docs.delete",
  "key.create",
  "key.import",
  "key.rotate",
  "key.update",
  "key.leaked",
  "key.delete",
  "role.put",
  "role.delete",
  "webhook_endpoint.create",
  "webhook_endpoint.update",
  "webhook_endpoint.delete",
  "webhook_endpoint.deactivate",
  "resend.start",
  "resend.cancel",
  "job.retry",
  "job_sweep.start",
  "job_sweep.cancel",
  "signing_key.rotate",
  "schedule.create",
  "schedule.update",
  "schedule.delete",
  "workflow.set",
  "workflow.delete",
  "alert.create",
  "alert.update",
  "alert.delete",
  "alert.off",
  "event_type.create",
  "event_type.update",
  "event_type.delete",
  "session.create",
  "session.end",
  "portal_link.create",
  "portal_link.open",
  "portal_link.revoke",
])
export type AuditAction = typeof AuditAction.Type

/** Which entries are asked for. */
export const auditFilter = {
  person: Schema.optionalKey(Text.check(atMost(255))).annotate({
    description: "Only changes by the person with this subject.",
    examples: ["248289761001"],
  }),
  since: Schema.optionalKey(time("Only changes from this time on.")),
  until: Schema.optionalKey(time("Only changes before this time.")),
}
export interface AuditFilter {
  readonly person?: string | undefined
  readonly since?: DateTime.Utc | undefined
  readonly until?: DateTime.Utc | undefined
}

/** One change: who made it, when, and what changed. */
export const AuditEntry = Schema.Struct({
  id: Id.annotate({ description: "The id of the entry, a ULID." }),
  at: time("When the change was made."),
  actor: Schema.String.annotate({
    description:
      "Who made the change: administrator; person:<subject> for a person; key:<id> for an API key; portal:<id> for a session of a " +
      "portal link; anonymous for open mode without a credential; service for Gatehouse itself.",
    examples: ["administrator", "key:01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
  person: Schema.NullOr(Person).annotate({
    description: "The person, as they were named when they signed in. null: no person made the change.",
  }),
  action: AuditAction.annotate({ description: "What was done.", examples: ["key.create"] }),
  target: Id.annotate({ description: "The id of the changed resource." }),
  details: Schema.Record(Schema.String, Schema.Unknown).annotate({
    description: "The details of the change, without secrets. The fields depend on the action.",
    examples: [{ name: "ci" }],
  }),
  requestId: Schema.NullOr(Schema.String).annotate({
    description: "The x-request-id of the request that made the change. null: no request made it.",
    examples: ["3d1f6c1e-6d3b-4a6e-9a58-0c1f3a3a7e02"],
  }),
}).annotate({ identifier: "AuditEntry" })
export interface AuditEntry extends Schema.Schema.Type<typeof AuditEntry> {
  /** The event about the change. The repository writes both in one transaction; no list shows the event. */
  readonly event?: ServiceEvent | undefined
}
