import { DateTime, Effect, Layer } from "effect"
import {
  type Delivery,
  DeliveryLogRepository,
  deliveryNotFound,
  endpointInactive,
} from "#src/domain/webhooks/DeliveryLog.ts"
import { Conflict } from "#src/domain/Errors.ts"
import { endpointNotFound } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { nextPlace } from "./outbox.ts"
import type { StoredDelivery } from "./WebhookWorld.ts"
import { ownedBy, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, rowsAfter } from "./World.ts"

const conflict = (error: string) => Effect.fail(new Conflict({ error }))
const inactive = Effect.fail(endpointInactive())

const shown = ({ row, dueAt }: StoredDelivery): Delivery => ({
  ...row,
  next_attempt_at: row.state === "pending" ? dueAt : null,
})

/** The delivery log in memory. */
export const layer = Layer.effect(
  DeliveryLogRepository,
  Effect.map(WebhookWorld, ({ deliveries, endpoints }) => {
    const isInFlight = ({ claimId, dueAt }: StoredDelivery, now: DateTime.Utc) =>
      claimId !== null && dueAt !== null && DateTime.isGreaterThan(dueAt, now)
    const resend = (delivery: StoredDelivery, now: DateTime.Utc) => {
      const inFlight = isInFlight(delivery, now)
      deliveries.set(delivery.row.delivery_id, {
        ...delivery,
        row: { ...delivery.row, state: "pending", updated_at: now },
        attemptsSinceResend: 0,
        place: nextPlace(),
        dueAt: inFlight ? delivery.dueAt : now,
        backlogged: false,
        claimId: inFlight ? delivery.claimId : null,
      })
    }

    return DeliveryLogRepository.of({
      list: (orgId, { webhook_endpoint_id, job_id, event_id, event_type, since, until, state }, page) =>
        Effect.sync(() => ({
          deliveries: rowsAfter(
            [...deliveries.values()]
              .filter(
                ({ orgId: owner, row }) =>
                  owner === orgId &&
                  (webhook_endpoint_id === undefined || row.webhook_endpoint_id === webhook_endpoint_id) &&
                  (job_id === undefined || row.job_id === job_id) &&
                  (event_id === undefined || row.event_id === event_id) &&
                  (event_type === undefined || row.event === event_type) &&
                  (since === undefined || DateTime.isGreaterThanOrEqualTo(row.created_at, since)) &&
                  (until === undefined || DateTime.isLessThan(row.created_at, until)) &&
                  (state === undefined || row.state === state),
              )
              .map(shown),
            (row) => row.delivery_id,
            page,
            -1,
          ),
          scannedTo: null,
        })),

      find: (orgId, deliveryId) =>
        Effect.map(findOr(ownedBy(deliveries, orgId, deliveryId), deliveryNotFound), (delivery) => ({
          ...shown(delivery),
          payload: delivery.payload,
          attempt_log: delivery.attempts,
        })),

      retry: Effect.fnUntraced(function* (orgId, deliveryId, now) {
        const delivery = yield* findOr(ownedBy(deliveries, orgId, deliveryId), deliveryNotFound)
        if (isInFlight(delivery, now))
          return yield* conflict("An attempt of this delivery is in flight; try again when it has ended.")
        const endpointId = delivery.row.webhook_endpoint_id
        if (endpointId !== null) {
          const endpoint = endpoints.get(endpointId)
          if (endpoint === undefined) return yield* conflict("The webhook endpoint was deleted.")
          if (!endpoint.row.active) return yield* inactive
        }
        resend(delivery, now)
      }),

      recover: Effect.fnUntraced(function* ({ orgId, endpointId, since, until }, now) {
        const endpoint = yield* findOr(ownedBy(endpoints, orgId, endpointId), endpointNotFound)
        if (!endpoint.row.active) return yield* inactive
        const unsuccessful = [...deliveries.values()].filter(
          ({ row }) =>
            row.webhook_endpoint_id === endpointId &&
            DateTime.isGreaterThanOrEqualTo(row.created_at, since) &&
            (until === null || DateTime.isLessThan(row.created_at, until)) &&
            row.state !== "pending" &&
            row.state !== "delivered",
        )
        for (const delivery of unsuccessful) resend(delivery, now)
        return { recovered: unsuccessful.length, isAll: true, hasMore: false }
      }),
    })
  }),
)
