import { Context, DateTime, Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { AuditLog } from "../audit/AuditLog.ts"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { Conflict, NotFound, type Unavailable } from "../Errors.ts"
import { type Counted, cutRows, nextCursor, type Page } from "../Page.ts"
import { currentTenant } from "../Principal.ts"
import {
  CreatedAt,
  DeliveryId,
  EndpointId,
  EventId,
  Id,
  ResendId,
  time,
  Timestamp,
  UpdatedAt,
  whole,
} from "../Schemas.ts"
import { Wakeups } from "../Wakeups.ts"
import { SelectedEventType } from "./EventPatterns.ts"
import { failureKinds } from "./WebhookSender.ts"

export interface DeliveryFilter extends Omit<ResendFilter, "state"> {
  readonly job_id?: string | undefined
  readonly event_id?: string | undefined
  readonly state?: DeliveryState | undefined
}

/** One page of deliveries. */
interface FoundDeliveries {
  /** Up to `limit + 1`. */
  readonly deliveries: ReadonlyArray<Delivery>
  /** The last id that was read, when the list stopped before it found `limit + 1`; `null` when it read all. */
  readonly scannedTo: string | null
}

/** The deliveries of orgs, to read and to resend. */
export class DeliveryLogRepository extends Context.Service<
  DeliveryLogRepository,
  {
    /** Deliveries of the org, newest first. */
    readonly list: (orgId: string, filter: DeliveryFilter, page: Page) => Effect.Effect<FoundDeliveries, Unavailable>
    readonly find: (orgId: string, deliveryId: string) => Effect.Effect<DeliveryDetail, NotFound | Unavailable>
    /**
     * Makes a delivery due now and starts its retry schedule again. Fails with a `Conflict` when its endpoint is
     * inactive or deleted, or an attempt is in flight.
     */
    readonly retry: (
      orgId: string,
      deliveryId: string,
      now: DateTime.Utc,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /** Fails when the org has no such endpoint, or with a `Conflict` when it is inactive. */
    readonly requireActive: (
      orgId: string,
      endpointId: string,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /** Counts the deliveries that a resend would send, up to a limit; `isAll` says whether that is all. */
    readonly countResend: (orgId: string, filter: ResendFilter) => Effect.Effect<Counted, Unavailable>
    /**
     * Starts a sweep that resends the deliveries of a filter: each is pending when the sweep has reached it. An attempt
     * in flight continues. Fails when too many resends run, of the endpoint of the filter or over all endpoints.
     */
    readonly resend: (
      orgId: string,
      resend: { readonly filter: ResendFilter; readonly count: number },
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | Unavailable>
    /** The newest unfinished resends of the org, newest first. */
    readonly resends: (orgId: string) => Effect.Effect<ReadonlyArray<Resend>, Unavailable>
    /** Ends a resend: what it has not reached stays as it is. */
    readonly cancelResend: (orgId: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /** Groups the newest deliveries whose last attempt failed by what it ended with, the most first. */
    readonly causes: (
      orgId: string,
      filter: Pick<DeliveryFilter, "webhook_endpoint_id" | "since" | "until">,
    ) => Effect.Effect<ReadonlyArray<DeliveryCause>, Unavailable>
  }
>()("gatehouse/domain/DeliveryLog/DeliveryLogRepository") {}

/** What a resend selects, and its id; `null` when nothing is sent. */
export interface StartedResend extends Counted {
  readonly resendId: string | null
}

/** The deliveries of the current tenant. */
export class DeliveryLog extends Context.Service<DeliveryLog>()("gatehouse/domain/DeliveryLog", {
  make: Effect.gen(function* () {
    const repository = yield* DeliveryLogRepository
    const wakeups = yield* Wakeups
    const audit = yield* AuditLog
    const random = yield* SecureRandom.SecureRandom

    /** Counts the unsuccessful deliveries of a filter, and resends them in the background. */
    const resend = Effect.fn("DeliveryLog.resend")(function* (input: {
      readonly filter: ResendFilter
      readonly dry_run?: boolean | undefined
    }) {
      const orgId = yield* currentTenant
      const now = yield* DateTime.now
      // Without an end, a resend would follow the deliveries that fail while it runs.
      const filter = { ...input.filter, until: input.filter.until ?? now }
      const counted = yield* repository.countResend(orgId, filter)
      const found: StartedResend = { ...counted, resendId: null }
      if (input.dry_run === true || (counted.count === 0 && counted.isAll)) return found
      const target = yield* random.ulid
      const details = { filter: encodeFilter(filter), count: counted.count }
      const entry = yield* audit.entry({ action: "resend.start", target, details })
      yield* repository.resend(orgId, { filter, count: counted.count }, entry)
      yield* wakeups.sweeps
      return { ...found, resendId: target }
    })

    const resends = Effect.map(Effect.flatMap(currentTenant, repository.resends), (resends) => ({ resends })).pipe(
      Effect.withSpan("DeliveryLog.resends"),
    )

    return {
      list: Effect.fn("DeliveryLog.list")(function* (query: Page & DeliveryFilter) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, query, query)
        // A delivery has a few hundred bytes, so only `limit` ends a page.
        const page = cutRows(found.deliveries, query.limit)
        return {
          deliveries: page.items,
          next_cursor: nextCursor(page, (delivery) => delivery.delivery_id) ?? found.scannedTo,
        }
      }),

      get: Effect.fn("DeliveryLog.get")(function* (deliveryId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, deliveryId)
      }),

      retry: Effect.fn("DeliveryLog.retry")(function* (deliveryId: string) {
        const orgId = yield* currentTenant
        yield* repository.retry(orgId, deliveryId, yield* DateTime.now)
        yield* wakeups.deliveries
      }),

      /** Resends the unsuccessful deliveries of an active endpoint in a range of time, like `resend`. */
      recover: Effect.fn("DeliveryLog.recover")(function* (
        filter: ResendFilter & { readonly webhook_endpoint_id: string },
      ) {
        yield* repository.requireActive(yield* currentTenant, filter.webhook_endpoint_id)
        return yield* resend({ filter })
      }),

      resend,

      resends,

      cancelResend: Effect.fn("DeliveryLog.cancelResend")(function* (target: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "resend.cancel", target, details: {} })
        yield* repository.cancelResend(orgId, entry)
      }),

      causes: Effect.fn("DeliveryLog.causes")(function* (
        filter: Pick<DeliveryFilter, "webhook_endpoint_id" | "since" | "until">,
      ) {
        return { causes: yield* repository.causes(yield* currentTenant, filter) }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

export const DeliveryState = Schema.Literals(["pending", "delivered", "failed", "canceled", "skipped"]).annotate({
  description:
    "pending: an attempt is in flight or follows. delivered: the receiver answered with a 2xx status. failed: no attempt " +
    "is left. canceled: the endpoint was deleted or deactivated before the delivery. skipped: the endpoint was inactive " +
    "when the event was created.",
})
export type DeliveryState = typeof DeliveryState.Type

/** The deliveries that a resend sends. Absent fields select all. */
export const ResendFilter = Schema.Struct({
  webhook_endpoint_id: Schema.optionalKey(Id.annotate({ description: "Only deliveries to this endpoint." })),
  event_type: Schema.optionalKey(SelectedEventType).annotate({
    description: "Only deliveries of events of exactly this type.",
    examples: ["invoice.paid"],
  }),
  state: Schema.optionalKey(Schema.Literals(["failed", "canceled", "skipped"])).annotate({
    description: "Default: all three.",
  }),
  status: Schema.optionalKey(whole(100, 599)).annotate({
    description: "Only deliveries whose last attempt ended with this HTTP status.",
    examples: [503],
  }),
  failure: Schema.optionalKey(Schema.Literals(failureKinds)).annotate({
    description: "Only deliveries whose last attempt ended with this kind of failure.",
  }),
  since: Schema.optionalKey(time("Only deliveries that were created at this time or later.")),
  until: Schema.optionalKey(time("Only deliveries that were created before this time. Default: now.")),
}).annotate({ identifier: "ResendFilter", description: "Which deliveries are sent again. Absent fields select all." })
export interface ResendFilter extends Schema.Schema.Type<typeof ResendFilter> {}

const encodeFilter = Schema.encodeSync(ResendFilter)

/** A resend that is not finished. */
export const Resend = Schema.Struct({
  resend_id: ResendId,
  filter: ResendFilter,
  count: Schema.Int.annotate({ description: "How many deliveries it began with, counted up to 10,000." }),
  resent: Schema.Int.annotate({ description: "How many it has sent again so far." }),
  created_at: CreatedAt,
}).annotate({ identifier: "Resend" })
export interface Resend extends Schema.Schema.Type<typeof Resend> {}

/** What the last attempts of some deliveries ended with. */
export const maxTopEndpoints = 5

/** What an endpoint is called: its description, or the host and the path of its URL. */
export const endpointName = ({ description, url }: { readonly description: string | null; readonly url: string }) => {
  const { host, pathname } = new URL(url)
  return description ?? `${host}${pathname === "/" ? "" : pathname}`
}

export const DeliveryCause = Schema.Struct({
  status: Schema.NullOr(Schema.Int).annotate({ description: "The HTTP status. null: there was no response." }),
  failure: Schema.NullOr(Schema.String).annotate({ description: "The kind of failure. null: there was a response." }),
  deliveries: Schema.Int.annotate({ description: "How many deliveries, of the newest that failed or are retried." }),
  endpoints: Schema.Int.annotate({ description: "How many endpoints they are of." }),
  top_endpoints: Schema.Array(
    Schema.Struct({
      webhook_endpoint_id: EndpointId,
      name: Schema.NullOr(Schema.String).annotate({
        description: "Its description; without one, the host and the path of its URL. null: it was deleted.",
        examples: ["hooks.example.com/in"],
      }),
      deliveries: Schema.Int.annotate({ description: "How many of them are to the endpoint." }),
    }),
  ).annotate({ description: "The five endpoints with most of them, the most first." }),
  latest: Schema.Struct({
    delivery_id: DeliveryId,
    at: time("When its last attempt began."),
    text: Schema.NullOr(Schema.String).annotate({
      description: "The first 200 characters of the response, or the failure in a sentence.",
      examples: ["maintenance until 04:00"],
    }),
  }).annotate({ description: "The newest of them." }),
}).annotate({ identifier: "DeliveryCause" })
export interface DeliveryCause extends Schema.Schema.Type<typeof DeliveryCause> {}

/** One event to one receiver. */
export const Delivery = Schema.Struct({
  delivery_id: Id.annotate({ description: "The id of the delivery. Every attempt sends it as the webhook-id header." }),
  event_id: EventId,
  job_id: Schema.NullOr(Id).annotate({ description: "The finished job. null: the event has no job." }),
  webhook_endpoint_id: Schema.NullOr(Id).annotate({
    description: "The endpoint that receives the event. null: the job's callback_url receives it.",
  }),
  event: Schema.String.annotate({ description: "The type of the event.", examples: ["job.completed"] }),
  state: DeliveryState,
  attempts: Schema.Int.annotate({ description: "How many attempts were made." }),
  next_attempt_at: Schema.NullOr(Timestamp).annotate({
    description: "The time of the next attempt. null: the delivery is not pending.",
  }),
  last_status: Schema.NullOr(Schema.Int).annotate({
    description: "The HTTP status of the last attempt. null: it had no response, or there was no attempt.",
    examples: [200],
  }),
  last_failure: Schema.NullOr(Schema.String).annotate({
    description: "Why the last attempt failed, as in the attempt_log.",
    examples: [null],
  }),
  last_duration_ms: Schema.NullOr(Schema.Int).annotate({
    description: "How long the last attempt took. null: there was no attempt.",
    examples: [12],
  }),
  created_at: CreatedAt,
  updated_at: UpdatedAt,
}).annotate({ identifier: "Delivery" })
export interface Delivery extends Schema.Schema.Type<typeof Delivery> {}

/** One HTTP request of a delivery, and its outcome. */
export const DeliveryAttempt = Schema.Struct({
  number: Schema.Int.annotate({ description: "The number of the attempt, from 1." }),
  started_at: time("When the attempt began."),
  duration_ms: Schema.Int.annotate({ description: "How long the attempt took, in milliseconds.", examples: [12] }),
  status: Schema.NullOr(Schema.Int).annotate({
    description: "The HTTP status of the response. null: there was no response.",
    examples: [503],
  }),
  failure: Schema.NullOr(Schema.String).annotate({
    description:
      `Why the attempt failed, one of ${failureKinds.join(", ")}. null: the receiver answered with a complete ` +
      "response.",
    examples: [null],
  }),
  error: Schema.NullOr(Schema.String).annotate({ description: "The failure in a sentence.", examples: [null] }),
  body: Schema.NullOr(Schema.String).annotate({
    description: "The first 4 KiB of the response body.",
    examples: ["busy"],
  }),
}).annotate({ identifier: "DeliveryAttempt" })
export interface DeliveryAttempt extends Schema.Schema.Type<typeof DeliveryAttempt> {}

/** The attempts that a delivery shows: it may be retried any number of times. */
export const maxShownAttempts = 100

export const DeliveryDetail = Schema.Struct({
  ...Delivery.fields,
  payload: Schema.String.annotate({
    description: "The exact request body that every attempt signs and sends.",
    examples: [
      '{"event":"job.completed","job_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","workflow":"nightly-report","deployment_id":null,"status":"completed","result":{"rows":3},"error":null,"mapped_stack":null}',
    ],
  }),
  attempt_log: Schema.Array(DeliveryAttempt).annotate({ description: "The last 100 attempts, oldest first." }),
}).annotate({ identifier: "DeliveryDetail" })
export interface DeliveryDetail extends Schema.Schema.Type<typeof DeliveryDetail> {}

export const endpointInactive = () => new Conflict({ error: "The webhook endpoint is inactive; activate it first." })
export const endpointDeleted = () => new Conflict({ error: "The webhook endpoint was deleted." })
export const attemptInFlight = () =>
  new Conflict({ error: "An attempt of this delivery is in flight; try again when it has ended." })

export const resendNotFound = () => new NotFound({ error: "There is no such resend, or it has ended." })

export const deliveryNotFound = () => new NotFound({ error: "There is no such delivery." })
