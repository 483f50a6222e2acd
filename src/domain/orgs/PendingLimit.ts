import { Context, DateTime, Effect, Layer } from "effect"
import { AuditLog } from "../audit/AuditLog.ts"
import type { Unavailable } from "../Errors.ts"
import { countReached } from "./OrgLimits.ts"
import { Wakeups } from "../webhooks/Wakeups.ts"
import { WebhookEndpointRepository } from "../webhooks/WebhookEndpointRepository.ts"

/** An org that has more pending deliveries than it may have. */
export interface OverPendingLimit {
  readonly orgId: string
  readonly limit: number
  /** Counted no further than is needed. */
  readonly pending: number
  /** The endpoint with the largest backlog; `null` when all of them are callbacks. */
  readonly endpointId: string | null
}

/** Where pending deliveries are counted. */
export class PendingDeliveries extends Context.Service<
  PendingDeliveries,
  {
    /** The orgs over their limit, among those that this replica gave new deliveries since the last call. */
    readonly overLimit: Effect.Effect<ReadonlyArray<OverPendingLimit>, Unavailable>
  }
>()("gatehouse/domain/PendingLimit/PendingDeliveries") {}

/** Holds the limit of pending deliveries. Events are always accepted: an endpoint that does not keep up is deactivated. */
export class PendingLimit extends Context.Service<
  PendingLimit,
  {
    /** Deactivates the endpoint with the largest backlog of each org over its limit: one of an org at each call. */
    readonly enforce: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/PendingLimit") {
  static readonly layer = Layer.effect(
    PendingLimit,
    Effect.gen(function* () {
      const deliveries = yield* PendingDeliveries
      const endpoints = yield* WebhookEndpointRepository
      const audit = yield* AuditLog
      const wakeups = yield* Wakeups

      const deactivate = Effect.fnUntraced(function* (orgId: string, endpointId: string) {
        const change = {
          action: "webhook_endpoint.deactivate",
          target: endpointId,
          details: { reason: "failing" },
        } as const
        const entry = yield* audit.entryOfService(change)
        if (!(yield* endpoints.deactivate(orgId, endpointId, yield* DateTime.now, entry))) return
        yield* wakeups.sweeps
        yield* countReached("pendingDeliveries")
        yield* Effect.logWarning("An endpoint is deactivated: its org has too many pending deliveries")
      })

      const enforce = Effect.flatMap(
        deliveries.overLimit,
        Effect.forEach(
          ({ orgId, limit, pending, endpointId }) =>
            (endpointId === null
              ? Effect.logWarning("An org has too many pending deliveries, all of them callbacks")
              : deactivate(orgId, endpointId)
            ).pipe(
              // One that cannot be deactivated now keeps no other one: the next event of its org comes back to it.
              Effect.catch((error) => Effect.logWarning(`An endpoint is not deactivated: ${error.error}`)),
              Effect.annotateLogs({ orgId, endpointId, pending, limit }),
            ),
          { discard: true },
        ),
      )

      return PendingLimit.of({ enforce })
    }),
  )
}
