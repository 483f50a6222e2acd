import { Context, DateTime, Effect, Layer, Schema } from "effect"
import { Conflict, NotFound, type Unauthorized, type Unavailable } from "../Errors.ts"
import { cutRows, nextCursor, type Page } from "../Page.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import { Id, Timestamp } from "../Schemas.ts"
import { Wakeups } from "../Wakeups.ts"

export interface DeliveryFilter {
  readonly webhook_endpoint_id?: string | undefined
  readonly job_id?: string | undefined
  readonly event_id?: string | undefined
  readonly event_type?: string | undefined
  /** Deliveries that were created at this time or later. */
  readonly since?: DateTime.Utc | undefined
  /** Deliveries that were created before this time. */
  readonly until?: DateTime.Utc | undefined
  readonly state?: DeliveryState | undefined
}

/** One page of deliveries. */
interface FoundDeliveries {
  /** Up to `limit + 1`. */
  readonly deliveries: ReadonlyArray<Delivery>
  /** The last id that was read, when the list stopped before it found `limit + 1`; `null` when it read all. */
  readonly scannedTo: string | null
}

/** How many deliveries are resent: their number, or a lower bound of it when `isAll` is false. */
interface Recovered {
  readonly recovered: number
  readonly isAll: boolean
}

/** The deliveries of an endpoint to resend: those created at `since` or later, and before `until`. */
export interface Recovery {
  readonly orgId: string
  readonly endpointId: string
  readonly since: DateTime.Utc
  /** `null` for no end. */
  readonly until: DateTime.Utc | null
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
    /**
     * Makes the `failed`, `canceled` and `skipped` deliveries due now. An attempt in flight continues. All of them
     * count as pending at once; when there are many, a sweep changes their rows. Fails with a `Conflict` when the
     * endpoint is inactive or has too many sweeps. `hasMore` says whether a sweep follows.
     */
    readonly recover: (
      recovery: Recovery,
      now: DateTime.Utc,
    ) => Effect.Effect<Recovered & { readonly hasMore: boolean }, NotFound | Conflict | Unavailable>
  }
>()("gatehouse/domain/DeliveryLog/DeliveryLogRepository") {}

/** The deliveries of the current tenant. */
export class DeliveryLog extends Context.Service<
  DeliveryLog,
  {
    readonly list: (
      query: Page & DeliveryFilter,
    ) => Effect.Effect<
      { readonly deliveries: ReadonlyArray<Delivery>; readonly next_cursor: string | null },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    readonly get: (
      deliveryId: string,
    ) => Effect.Effect<DeliveryDetail, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    readonly retry: (
      deliveryId: string,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    /** Resends the unsuccessful deliveries of an endpoint in a range of time. */
    readonly recover: (input: {
      readonly webhook_endpoint_id: string
      readonly since: DateTime.Utc
      readonly until?: DateTime.Utc | undefined
    }) => Effect.Effect<Recovered, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
  }
>()("gatehouse/domain/DeliveryLog") {
  static readonly layer = Layer.effect(
    DeliveryLog,
    Effect.gen(function* () {
      const repository = yield* DeliveryLogRepository
      const wakeups = yield* Wakeups

      const list = Effect.fn("DeliveryLog.list")(function* (query: Page & DeliveryFilter) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, query, query)
        // A delivery has a few hundred bytes, so only `limit` ends a page.
        const page = cutRows(found.deliveries, query.limit)
        return {
          deliveries: page.items,
          next_cursor: nextCursor(page, (delivery) => delivery.delivery_id) ?? found.scannedTo,
        }
      })

      const get = Effect.fn("DeliveryLog.get")(function* (deliveryId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, deliveryId)
      })

      const retry = Effect.fn("DeliveryLog.retry")(function* (deliveryId: string) {
        const orgId = yield* currentTenant
        yield* repository.retry(orgId, deliveryId, yield* DateTime.now)
        yield* wakeups.deliveries
      })

      const recover: DeliveryLog["Service"]["recover"] = Effect.fn("DeliveryLog.recover")(function* (input) {
        const orgId = yield* currentTenant
        const { webhook_endpoint_id: endpointId, since, until = null } = input
        const now = yield* DateTime.now
        const { hasMore, ...recovered } = yield* repository.recover({ orgId, endpointId, since, until }, now)
        yield* wakeups.deliveries
        if (hasMore) yield* wakeups.sweeps
        return recovered
      })

      return DeliveryLog.of({ list, get, retry, recover })
    }),
  )
}

export const DeliveryState = Schema.Literals(["pending", "delivered", "failed", "canceled", "skipped"]).annotate({
  description:
    "pending: an attempt is in flight or follows. delivered: the receiver answered with a 2xx status. failed: no attempt " +
    "is left. canceled: the endpoint was deleted or deactivated before the delivery. skipped: the endpoint was inactive " +
    "when the event was created.",
})
export type DeliveryState = typeof DeliveryState.Type

/** One event to one receiver. */
export const Delivery = Schema.Struct({
  delivery_id: Id.annotate({ description: "The id of the delivery. Every attempt sends it as the webhook-id header." }),
  event_id: Id,
  job_id: Schema.NullOr(Id).annotate({ description: "The finished job. null: the event has no job." }),
  webhook_endpoint_id: Schema.NullOr(Id).annotate({
    description: "The endpoint that receives the event. null: the job's callback_url receives it.",
  }),
  event: Schema.String.annotate({ description: "The type of the event.", examples: ["job.completed"] }),
  state: DeliveryState,
  attempts: Schema.Int,
  next_attempt_at: Schema.NullOr(Timestamp).annotate({
    description: "The time of the next attempt. null: the delivery is not pending.",
  }),
  created_at: Timestamp,
  updated_at: Timestamp,
}).annotate({ identifier: "Delivery" })
export interface Delivery extends Schema.Schema.Type<typeof Delivery> {}

/** One HTTP request of a delivery, and its outcome. */
export const DeliveryAttempt = Schema.Struct({
  number: Schema.Int,
  started_at: Timestamp,
  duration_ms: Schema.Int.annotate({ examples: [12] }),
  status: Schema.NullOr(Schema.Int).annotate({
    description: "The HTTP status of the response. null: there was no response.",
    examples: [503],
  }),
  failure: Schema.NullOr(Schema.String).annotate({
    description:
      "Why the attempt failed: timeout, dns, refused_address, tls, connection, bad_response or secret. null: the receiver " +
      "answered with a complete response.",
    examples: [null],
  }),
  error: Schema.NullOr(Schema.String).annotate({ description: "The failure in a sentence.", examples: [null] }),
  body: Schema.NullOr(Schema.String).annotate({
    description: "The first 4 KiB of the response body.",
    examples: ["busy"],
  }),
}).annotate({ identifier: "DeliveryAttempt" })
export interface DeliveryAttempt extends Schema.Schema.Type<typeof DeliveryAttempt> {}

export const DeliveryDetail = Schema.Struct({
  ...Delivery.fields,
  payload: Schema.String.annotate({
    description: "The exact request body that every attempt signs and sends.",
    examples: [
      '{"event":"job.completed","job_id":"01KAHBMKZ3D2X7S5QN8W4V6R9T","nonce":"9f86d081884c7d659a2feaa0c55ad015","workflow":"nightly-report","deployment_id":null,"status":"completed","result":{"rows":3},"error":null,"mapped_stack":null}',
    ],
  }),
  attempt_log: Schema.Array(DeliveryAttempt),
}).annotate({ identifier: "DeliveryDetail" })
export interface DeliveryDetail extends Schema.Schema.Type<typeof DeliveryDetail> {}

export const endpointInactive = () => new Conflict({ error: "The webhook endpoint is inactive; activate it first." })
export const endpointDeleted = () => new Conflict({ error: "The webhook endpoint was deleted." })
export const attemptInFlight = () =>
  new Conflict({ error: "An attempt of this delivery is in flight; try again when it has ended." })

export const deliveryNotFound = () => new NotFound({ error: "There is no such delivery." })
