import { Context, DateTime, Effect, Layer } from "effect"
import type { Unavailable } from "../Errors.ts"
import { Wakeups } from "../Wakeups.ts"
import { Publish } from "../activity/LiveFeed.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { countReached } from "../orgs/OrgLimits.ts"
import { deactivated } from "./Event.ts"
import { WebhookEndpointRepository } from "./WebhookEndpointRepository.ts"

/** An org with more pending deliveries than its limit. */
interface OverPendingLimit {
  readonly orgId: string
  readonly limit: number
  /** The pending deliveries. The count can stop once it is above the limit. */
  readonly pending: number
  /** The endpoint with the most pending deliveries; `null` when all of them are callbacks. */
  readonly endpointId: string | null
}

/** Counts the pending deliveries of orgs. */
export class PendingDeliveries extends Context.Service<
  PendingDeliveries,
  {
    /** The orgs over their limit, of those for which this replica has created deliveries since the last call. */
    readonly overLimit: Effect.Effect<ReadonlyArray<OverPendingLimit>, Unavailable>
  }
>()("gatehouse/domain/PendingLimit/PendingDeliveries") {}

/** Enforces the limit of pending deliveries. It never refuses an event, but deactivates the slowest endpoint. */
export class PendingLimit extends Context.Service<PendingLimit>()("gatehouse/domain/PendingLimit", {
  make: Effect.gen(function* () {
    const deliveries = yield* PendingDeliveries
    const endpoints = yield* WebhookEndpointRepository
    const audit = yield* AuditLog
    const wakeups = yield* Wakeups
    const publish = yield* Publish

    const deactivate = Effect.fnUntraced(function* (orgId: string, endpointId: string) {
      const change = {
        action: "webhook_endpoint.deactivate",
        target: endpointId,
        details: { reason: "failing" },
        event: deactivated(endpointId, "failing"),
      } as const
      const entry = yield* audit.entryOfService(change)
      if (!(yield* endpoints.deactivate(orgId, endpointId, yield* DateTime.now, entry))) return
      publish(() => [{ topic: "endpoint", orgId, data: { endpointId, change: "deactivated" } }])
      yield* wakeups.sweeps
      yield* countReached("pendingDeliveries")
      yield* Effect.logWarning("An endpoint is deactivated: its org has too many pending deliveries")
    })

    return {
      /** For each org over its limit, deactivates the endpoint with the most pending deliveries. */
      enforce: Effect.flatMap(
        deliveries.overLimit,
        Effect.forEach(
          ({ orgId, limit, pending, endpointId }) =>
            (endpointId === null
              ? Effect.logWarning("An org has too many pending deliveries, all of them callbacks")
              : deactivate(orgId, endpointId)
            ).pipe(
              // An error must not stop the other orgs. The next event of this org leads here again.
              Effect.catch((error) => Effect.logWarning(`An endpoint is not deactivated: ${error.error}`)),
              Effect.annotateLogs({ orgId, endpointId, pending, limit }),
            ),
          { discard: true },
        ),
      ),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
