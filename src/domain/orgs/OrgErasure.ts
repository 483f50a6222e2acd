import { Schema } from "effect"
import { AuditEntry } from "../audit/AuditEntry.ts"
import { OrgId, time } from "../Schemas.ts"

/** What an erasure counts. */
export const erasedKinds = {
  projects: "Projects of the org.",
  deployments: "Deployments of its projects.",
  keys: "API keys.",
  roles: "Roles of the org.",
  endpoints: "Webhook endpoints.",
  eventTypes: "Event types of the catalogue.",
  events: "Events of the org.",
  deliveries: "Deliveries, pending ones too.",
  jobs: "Jobs, finished ones too.",
  schedules: "Schedules of jobs.",
  docsPages: "Pages of documentation.",
  docsQuestions: "Questions of readers.",
  alerts: "Alerts of the org.",
  sessions: "Sessions of the console and of portals.",
  others: "Rows of other tables, such as attempts and counters of usage.",
} as const
export type ErasedKind = keyof typeof erasedKinds

/** How many rows of each kind an erasure has removed. */
export type Erased = { readonly [Kind in ErasedKind]: number }

const counts = Object.fromEntries(
  Object.entries(erasedKinds).map(([kind, description]) => [kind, Schema.Int.annotate({ description })]),
) as { readonly [Kind in ErasedKind]: typeof Schema.Int }

/** The erasure of a deleted org: how far it is; at its end, the receipt. */
export const OrgErasure = Schema.Struct({
  orgId: OrgId,
  deletedAt: time("When the org was deleted, and the erasure began."),
  actor: AuditEntry.fields.actor,
  person: AuditEntry.fields.person,
  endedAt: Schema.NullOr(time("When nothing of the org was left but its audit log. null: the erasure continues.")),
  progress: Schema.Int.annotate({
    description:
      "How much is done, in percent. At 100 the erasure waits until every request from before the deletion has ended.",
    examples: [40],
  }),
  erased: Schema.Struct(counts).annotate({
    identifier: "ErasedRows",
    description: "How many rows were erased, by kind.",
  }),
}).annotate({ identifier: "OrgErasure" })
export interface OrgErasure extends Schema.Schema.Type<typeof OrgErasure> {}
