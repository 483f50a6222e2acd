import { DateTime, Effect, Layer } from "effect"
import { DeliveryTimes } from "#src/domain/webhooks/DeliveryTimes.ts"
import { WebhookWorld } from "./WebhookWorld.ts"

/** The times of deliveries in memory. */
export const layer = Layer.effect(
  DeliveryTimes,
  Effect.map(WebhookWorld, ({ deliveries }) =>
    DeliveryTimes.of({
      putRight: ({ now, leaseUntil, limit }) =>
        Effect.sync(() => {
          const late = [...deliveries].filter(([, { row, dueAt, claimId, parked, tries }]) => {
            if (row.state !== "pending" || dueAt === null) return false
            if (claimId !== null) return DateTime.isGreaterThan(dueAt, leaseUntil)
            return (parked || tries === 0) && DateTime.isGreaterThan(dueAt, now)
          })
          const moved = late.slice(0, limit)
          for (const [id, delivery] of moved) {
            deliveries.set(id, { ...delivery, dueAt: delivery.claimId === null ? now : leaseUntil })
          }
          return { moved: moved.length, next: moved.length === limit ? { orgId: "", lane: "" } : null }
        }),
    }),
  ),
)
