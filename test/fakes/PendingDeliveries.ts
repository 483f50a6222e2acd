import { Effect, Layer } from "effect"
import { DefaultLimits, limitsOf } from "#src/domain/orgs/OrgLimits.ts"
import { PendingDeliveries } from "#src/domain/webhooks/PendingLimit.ts"
import { rowsOf, WebhookWorld } from "./WebhookWorld.ts"

/** The counts of pending deliveries in memory. */
export const layer = Layer.effect(
  PendingDeliveries,
  Effect.gen(function* () {
    const { deliveries, endpoints, events, overrides } = yield* WebhookWorld
    const defaults = yield* DefaultLimits
    const countPending = (orgId: string, id: string | null) =>
      rowsOf(deliveries, orgId).filter(
        (row) => row.state === "pending" && (id === null || row.webhook_endpoint_id === id),
      ).length

    return PendingDeliveries.of({
      overLimit: Effect.sync(() => {
        const orgs = new Set([...events.values()].map(({ orgId }) => orgId))
        return [...orgs].flatMap((orgId) => {
          const limit = limitsOf(defaults, overrides.get(orgId) ?? {}).pendingDeliveries
          const pending = countPending(orgId, null)
          if (pending <= limit) return []
          const [largest] = rowsOf(endpoints, orgId)
            .map(({ webhook_endpoint_id: id }) => ({ id, n: countPending(orgId, id) }))
            .filter(({ n }) => n > 0)
            .sort((a, b) => b.n - a.n || (a.id < b.id ? -1 : 1))
          return [{ orgId, limit, pending, endpointId: largest?.id ?? null }]
        })
      }),
    })
  }),
)
