import { DateTime, Duration, Effect, Layer } from "effect"
import type { Claim } from "#src/domain/DeliveryQueue.ts"
import { DeliveryQueue } from "#src/domain/DeliveryQueue.ts"
import { recordAttempt, recordEndpoints } from "./recordAttempts.ts"
import type { StoredDelivery } from "./WebhookWorld.ts"
import { cancelPending, WebhookWorld } from "./WebhookWorld.ts"

const byDue = (a: StoredDelivery, b: StoredDelivery) => Duration.toMillis(DateTime.distance(b.dueAt!, a.dueAt!))

/** The outbox in memory. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.map(WebhookWorld, (world) => {
    const { deliveries, endpoints, jobs } = world
    const pending = () => [...deliveries.values()].filter(({ row, dueAt }) => row.state === "pending" && dueAt !== null)

    const take = ({ claimId, leaseUntil, now }: Claim, delivery: StoredDelivery) => {
      const { row, payload, lane, tries } = delivery
      deliveries.set(row.delivery_id, { ...delivery, claimId, dueAt: leaseUntil, parked: false })
      const endpoint = endpoints.get(row.webhook_endpoint_id ?? "")
      const job = jobs.get(row.job_id)!
      const previous = endpoint?.previous
      const signsToo = previous != null && DateTime.isGreaterThan(previous.until, now)
      return {
        deliveryId: row.delivery_id,
        claimId,
        orgId: delivery.orgId,
        endpointId: row.webhook_endpoint_id,
        lane,
        url: endpoint?.row.url ?? job.row.callback_url!,
        secrets:
          endpoint === undefined
            ? [job.secret!]
            : [endpoint.secret, ...(signsToo ? [previous.secret] : [])].map((stored) => ({
                stored,
                owner: endpoint.row.webhook_endpoint_id,
              })),
        event: row.event,
        body: payload,
        attempts: row.attempts,
        tries,
        failingSince: endpoint?.failingSince ?? null,
      }
    }

    return DeliveryQueue.of({
      claim: (claim) =>
        Effect.sync(() => {
          const room = new Map<string, number>()
          const due = pending().filter(({ dueAt }) => DateTime.isLessThanOrEqualTo(dueAt!, claim.now))
          const taken: Array<ReturnType<typeof take>> = []
          for (const delivery of due.sort(byDue)) {
            const { lane, row } = delivery
            const { count, cap } = claim.inHand.get(lane) ?? { count: 0, cap: claim.laneCap }
            const left = room.get(lane) ?? (endpoints.get(lane)?.failingSince == null ? cap : 1) - count
            if (left <= 0) deliveries.set(row.delivery_id, { ...delivery, parked: true })
            else if (taken.length < claim.limit) {
              room.set(lane, left - 1)
              taken.push(take(claim, delivery))
            }
          }
          return taken
        }),

      record: (records, now) =>
        Effect.sync(() => {
          const live = records.filter(({ delivery }) => {
            const { claimId } = deliveries.get(delivery.deliveryId) ?? { claimId: null }
            return claimId === delivery.claimId
          })
          const ended = recordEndpoints(world, live, now)
          for (const record of live) recordAttempt(world, record, now)
          for (const id of ended) cancelPending(world, id, now)
        }),

      release: (claimed, now) =>
        Effect.sync(() => {
          for (const { deliveryId, claimId } of claimed) {
            const delivery = deliveries.get(deliveryId)
            if (delivery?.claimId !== claimId) continue
            const isPending = delivery.row.state === "pending"
            deliveries.set(deliveryId, { ...delivery, claimId: null, dueAt: isPending ? now : null, parked: isPending })
          }
        }),

      nextDueAt: Effect.sync(
        () =>
          pending()
            .filter(({ parked }) => !parked)
            .sort(byDue)[0]?.dueAt ?? null,
      ),
    })
  }),
)
