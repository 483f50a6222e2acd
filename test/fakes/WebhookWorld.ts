import { Context, DateTime, Effect, Layer } from "effect"
import type { Delivery, DeliveryAttempt } from "#src/domain/webhooks/DeliveryLog.ts"
import type { Job, JobAttempt, JobLine, JobStep } from "#src/domain/jobs/Job.ts"
import type { JobSchedule } from "#src/domain/jobs/JobSchedule.ts"
import type { Workflow } from "#src/domain/jobs/WorkflowSettings.ts"
import { byteLength, rowCost } from "#src/domain/orgs/StoredBytes.ts"
import type { CatalogueType } from "#src/domain/webhooks/EventTypes.ts"
import { isServiceType } from "#src/domain/webhooks/EventPatterns.ts"
import type { WebhookEndpoint } from "#src/domain/webhooks/WebhookEndpoint.ts"
import type { EndpointSettings } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import type { SigningKey } from "#src/domain/webhooks/Signatures.ts"
import { World } from "./World.ts"
import type { Unavailable } from "#src/domain/Errors.ts"
import { orgDeleted } from "#src/domain/orgs/Org.ts"

export interface StoredEndpoint {
  readonly orgId: string
  readonly row: Omit<WebhookEndpoint, "failing_since" | "deactivated_reason">
  readonly settings: EndpointSettings
  readonly secret: string
  readonly previous: { readonly secret: string; readonly until: DateTime.Utc } | null
  readonly failingSince: DateTime.Utc | null
  readonly failures: number
  readonly deactivated: { readonly at: DateTime.Utc; readonly reason: "gone" | "failing" | "by_request" } | null
}

export interface StoredJob {
  readonly orgId: string
  readonly row: Job
  readonly idempotencyKey: string | null
  /** Whether it is queued and its time to run has not come. */
  readonly delayed: boolean
  readonly finishedAttempt: number | null
  readonly retriedAttempts: ReadonlyArray<number>
  readonly attemptsBefore: number
  readonly log: ReadonlyArray<JobAttempt>
  readonly lines: ReadonlyArray<JobLine>
  readonly steps: ReadonlyArray<JobStep>
  readonly secret: { readonly stored: string; readonly owner: string } | null
}

export interface StoredWorkflow {
  readonly settings: Workflow
  /** When its jobs were started, in milliseconds. */
  readonly starts: Array<number>
  /** The key that had the last turn. */
  lastKey: string
}

export interface StoredSchedule {
  readonly orgId: string
  readonly row: JobSchedule
  readonly callbackSecret: string | null
  readonly lastJobId: string | null
}

export interface StoredEvent {
  readonly orgId: string
  readonly id: string
  readonly jobId: string | null
  readonly idempotencyKey: string | null
  readonly channels: ReadonlyArray<string>
  readonly type: string
  readonly body: string
  readonly createdAt: DateTime.Utc
}

export interface StoredDelivery {
  readonly orgId: string
  readonly row: Omit<Delivery, "next_attempt_at" | "last_status" | "last_failure" | "last_duration_ms">
  readonly payload: string
  readonly lane: string
  readonly attemptsSinceResend: number
  /** The place in a lane that sends in order: what was queued or resent later has a larger one. */
  readonly place: number
  /** When it is due, or when its lease ends. */
  readonly dueAt: DateTime.Utc | null
  /** Whether it is in the backlog of its lane. */
  readonly backlogged: boolean
  readonly claimId: string | null
  readonly attempts: ReadonlyArray<DeliveryAttempt>
}

/** The rows that the fake repositories of the webhook interface share. */
export class WebhookWorld extends Context.Service<
  WebhookWorld,
  {
    readonly endpoints: Map<string, StoredEndpoint>
    readonly jobs: Map<string, StoredJob>
    readonly schedules: Map<string, StoredSchedule>
    /** By org and name. */
    readonly workflows: Map<string, Map<string, StoredWorkflow>>
    readonly events: Map<string, StoredEvent>
    /** By org and name. */
    readonly eventTypes: Map<string, Map<string, CatalogueType>>
    readonly strictEvents: World["Service"]["strictEvents"]
    readonly deliveries: Map<string, StoredDelivery>
    /** The Ed25519 keys of orgs, the newest first, and until when each signs. */
    readonly signingKeys: Map<string, ReadonlyArray<{ readonly key: SigningKey; readonly until: DateTime.Utc | null }>>
    /** When endpoints with a limit per second may send their next delivery, in milliseconds since the epoch. */
    readonly throttles: Map<string, number>
    /** The lanes of callbacks whose last attempt failed. */
    readonly failingCallbacks: Set<string>
    readonly audit: World["Service"]["audit"]
    readonly overrides: World["Service"]["overrides"]
    readonly used: World["Service"]["used"]
    /** Throws when the org does not exist, like a foreign key. */
    readonly needOrg: (orgId: string) => Effect.Effect<void, Unavailable>
  }
>()("gatehouse/test/WebhookWorld") {
  static readonly layer = Layer.effect(
    WebhookWorld,
    Effect.map(World, ({ audit, orgs, overrides, strictEvents, used }) => {
      const endpoints = new Map<string, StoredEndpoint>()
      const jobs = new Map<string, StoredJob>()
      const schedules = new Map<string, StoredSchedule>()
      const deliveries = new Map<string, StoredDelivery>()
      const events = new Map<string, StoredEvent>()
      const sumOf = <A extends { readonly orgId: string }>(
        rows: Map<string, A>,
        orgId: string,
        bytesOf: (row: A) => number,
      ) => [...rows.values()].reduce((sum, row) => sum + (row.orgId === orgId ? bytesOf(row) : 0), 0)
      const storedBytes = (orgId: string) =>
        sumOf(jobs, orgId, jobBytes) +
        sumOf(schedules, orgId, ({ row }) =>
          rowBytes("schedule", [row.callback_url, row.concurrency_key], [row.input]),
        ) +
        // Events of the service's own do not count.
        sumOf(events, orgId, ({ body, idempotencyKey, type }) =>
          isServiceType(type) ? 0 : rowBytes("event", [body, idempotencyKey]),
        ) +
        sumOf(
          deliveries,
          orgId,
          ({ attempts }) =>
            rowCost.delivery +
            rowCost.attempt * Math.max(0, attempts.length - 1) +
            attempts.reduce((sum, { error, body }) => sum + byteLength(error, body), 0),
        )
      used.set("endpoints", (orgId) => rowsOf(endpoints, orgId).length)
      used.set("schedules", (orgId) => rowsOf(schedules, orgId).length)
      used.set(
        "unfinishedJobs",
        (orgId) => rowsOf(jobs, orgId).filter(({ finished_at }) => finished_at === null).length,
      )
      used.set(
        "pendingDeliveries",
        (orgId) => rowsOf(deliveries, orgId).filter(({ state }) => state === "pending").length,
      )
      used.set("storedBytes", storedBytes)
      return {
        audit,
        overrides,
        used,
        endpoints,
        jobs,
        schedules,
        workflows: new Map(),
        events,
        eventTypes: new Map(),
        strictEvents,
        deliveries,
        signingKeys: new Map(),
        throttles: new Map(),
        failingCallbacks: new Set(),
        needOrg: (orgId) => Effect.suspend(() => (orgs.has(orgId) ? Effect.void : Effect.fail(orgDeleted))),
      }
    }),
  )
}

/** The rows of one org. */
export const rowsOf = <A>(stored: Map<string, { readonly orgId: string; readonly row: A }>, orgId: string) =>
  [...stored.values()].filter((one) => one.orgId === orgId).map(({ row }) => row)

/** A row of one org; `undefined` when the org has no such row. */
export const ownedBy = <A extends { readonly orgId: string }>(stored: Map<string, A>, orgId: string, id: string) => {
  const found = stored.get(id)
  return found?.orgId === orgId ? found : undefined
}

/** The stored bytes of a row, with its texts and its JSON values. */
export const rowBytes = (
  kind: keyof typeof rowCost,
  texts: ReadonlyArray<string | null>,
  values: ReadonlyArray<unknown> = [],
) => rowCost[kind] + byteLength(...texts, ...values.map((value) => (value == null ? null : JSON.stringify(value))))

/** The stored bytes of a job. */
export const jobBytes = ({ idempotencyKey, lines, log, row, steps }: Omit<StoredJob, "secret">) =>
  rowBytes(
    "job",
    [
      row.callback_url,
      idempotencyKey,
      row.concurrency_key,
      row.error,
      logText(log),
      ...[lines, steps].map(textOfLines),
    ],
    [row.input, row.result, row.mapped_stack],
  )

/** A JSON object in each line. */
export const textOfLines = (items: ReadonlyArray<object>) =>
  items.length === 0 ? null : items.map((item) => JSON.stringify(item)).join("\n")

/** The log of attempts as jsonb prints it. */
const logText = (log: ReadonlyArray<JobAttempt>) => {
  const entries = log.map(
    ({ attempt, ended_at, error, note }) =>
      `{"note": ${JSON.stringify(note)}, "error": ${JSON.stringify(error)}, "attempt": ${attempt}, ` +
      `"ended_at": "${DateTime.formatIso(ended_at)}"}`,
  )
  return log.length === 0 ? null : `[${entries.join(", ")}]`
}

/** Cancels the pending deliveries of an endpoint. An attempt in flight keeps its claim. */
export const cancelPending = ({ deliveries }: WebhookWorld["Service"], endpointId: string, now: DateTime.Utc) => {
  for (const [id, delivery] of deliveries) {
    if (delivery.lane !== endpointId || delivery.row.state !== "pending") continue
    deliveries.set(id, {
      ...delivery,
      row: { ...delivery.row, state: "canceled", updated_at: now },
      dueAt: delivery.claimId === null ? null : delivery.dueAt,
      backlogged: false,
    })
  }
}
