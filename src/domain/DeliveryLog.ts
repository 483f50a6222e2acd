import { Context, DateTime, Effect, Layer } from "effect"
import type { Delivery, DeliveryDetail, DeliveryState } from "./Delivery.ts"
import type { Conflict, Unavailable } from "./Errors.ts"
import { NotFound } from "./Errors.ts"
import type { Page } from "./Page.ts"
import { toPage } from "./Page.ts"
import { CurrentTenant } from "./Tenant.ts"
import { Wakeups } from "./Wakeups.ts"

export interface DeliveryFilter {
  readonly webhook_endpoint_id?: string | undefined
  readonly job_id?: string | undefined
  readonly state?: DeliveryState | undefined
}

/** Where a tenant's deliveries are read, and started again. */
export class DeliveryRepository extends Context.Service<
  DeliveryRepository,
  {
    /** Up to `limit + 1` deliveries of the org, newest first. */
    readonly list: (
      orgId: string,
      filter: DeliveryFilter,
      page: Page,
    ) => Effect.Effect<ReadonlyArray<Delivery>, Unavailable>
    readonly find: (orgId: string, deliveryId: string) => Effect.Effect<DeliveryDetail, NotFound | Unavailable>
    /**
     * Makes a delivery due now, with the schedule from its start. `Conflict` when its endpoint is inactive or deleted,
     * or an attempt is in flight.
     */
    readonly retry: (
      orgId: string,
      deliveryId: string,
      now: DateTime.Utc,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /**
     * Makes every delivery of the endpoint due now whose event came at `since` or later and that is `failed`, `canceled`
     * or `skipped`; an attempt of one that is still in flight goes on. Gives how many. `Conflict` when the endpoint is
     * inactive.
     */
    readonly recover: (
      orgId: string,
      endpointId: string,
      since: DateTime.Utc,
      now: DateTime.Utc,
    ) => Effect.Effect<number, NotFound | Conflict | Unavailable>
  }
>()("gatehouse/domain/DeliveryLog/DeliveryRepository") {}

export const deliveryNotFound = () => new NotFound({ error: "There is no such delivery." })

/** What became of a tenant's events. */
export class DeliveryLog extends Context.Service<
  DeliveryLog,
  {
    readonly list: (
      query: Page & DeliveryFilter,
    ) => Effect.Effect<
      { readonly deliveries: ReadonlyArray<Delivery>; readonly next_cursor: string | null },
      Unavailable,
      CurrentTenant
    >
    readonly get: (deliveryId: string) => Effect.Effect<DeliveryDetail, NotFound | Unavailable, CurrentTenant>
    readonly retry: (deliveryId: string) => Effect.Effect<void, NotFound | Conflict | Unavailable, CurrentTenant>
    /** Sends again everything of an endpoint that was not delivered since a time; gives how many deliveries that is. */
    readonly recover: (
      endpointId: string,
      since: DateTime.Utc,
    ) => Effect.Effect<number, NotFound | Conflict | Unavailable, CurrentTenant>
  }
>()("gatehouse/domain/DeliveryLog") {
  static readonly layer = Layer.effect(
    DeliveryLog,
    Effect.gen(function* () {
      const repository = yield* DeliveryRepository
      const wakeups = yield* Wakeups

      const list = Effect.fn("DeliveryLog.list")(function* (query: Page & DeliveryFilter) {
        const { orgId } = yield* CurrentTenant
        const rows = yield* repository.list(orgId, query, query)
        const { items, nextCursor } = toPage(rows, query.limit, (delivery) => delivery.delivery_id)
        return { deliveries: items, next_cursor: nextCursor }
      })

      const get = Effect.fn("DeliveryLog.get")(function* (deliveryId: string) {
        const { orgId } = yield* CurrentTenant
        return yield* repository.find(orgId, deliveryId)
      })

      const retry = Effect.fn("DeliveryLog.retry")(function* (deliveryId: string) {
        const { orgId } = yield* CurrentTenant
        yield* repository.retry(orgId, deliveryId, yield* DateTime.now)
        yield* wakeups.deliveries
      })

      const recover = Effect.fn("DeliveryLog.recover")(function* (endpointId: string, since: DateTime.Utc) {
        const { orgId } = yield* CurrentTenant
        const recovered = yield* repository.recover(orgId, endpointId, since, yield* DateTime.now)
        yield* wakeups.deliveries
        return recovered
      })

      return DeliveryLog.of({ list, get, retry, recover })
    }),
  )
}
