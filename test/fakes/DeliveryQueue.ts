import { DateTime, Duration, Effect, Layer } from "effect"
import type { Claim } from "#src/domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
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

    const isFailing = (lane: string) => endpoints.get(lane)?.failingSince != null || world.failingCallbacks.has(lane)

    const take = ({ claimId, leaseUntil, now }: Claim, delivery: StoredDelivery) => {
      const { row, payload, lane, attemptsSinceResend } = delivery
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
        attemptsSinceResend,
        failingSince: endpoint?.failingSince ?? null,
        failures: endpoint?.failures ?? (isFailing(lane) ? 1 : 0),
      }
    }

    return DeliveryQueue.of({
      claim: (claim) =>
        Effect.sync(() => {
          const due = pending().filter(({ dueAt }) => DateTime.isLessThanOrEqualTo(dueAt!, claim.now))
          const ofLane = new Map<string, number>()
          const ofOrg = new Map<string, number>()
          // Of an org, the first of each lane before the second of any; then the orgs in turns.
          const ranked = due
            .sort(byDue)
            .map((delivery) => {
              const rank = (ofLane.get(delivery.lane) ?? 0) + 1
              ofLane.set(delivery.lane, rank)
              return { delivery, rank }
            })
            .sort((a, b) => a.rank - b.rank)
          let ofShare = 0
          const shareOf = (lane: string) => ({ count: 0, cap: claim.laneCap, works: false, ...claim.lanes.get(lane) })
          /** Of a lane that works, or the first of one that has nothing here. */
          const isFirst = ({ delivery: { lane }, rank }: (typeof ranked)[number]) =>
            shareOf(lane).works || (shareOf(lane).count === 0 && rank === 1)
          const withRoom = ranked
            .filter(({ delivery: { lane }, rank }) => {
              const { cap, count } = shareOf(lane)
              return rank <= (isFailing(lane) ? 1 : cap) - count
            })
            .sort((a, b) => Number(isFirst(b)) - Number(isFirst(a)))
            .filter((one) => {
              const { orgId } = one.delivery
              const org = (ofOrg.get(orgId) ?? 0) + 1
              ofOrg.set(orgId, org)
              ofShare++
              const has = claim.orgs.get(orgId)?.count ?? 0
              const { free, reserve } = claim
              const room = Math.ceil((free.count - reserve * has) / (1 + reserve))
              const common = Math.ceil(((free.count + has) / (1 + reserve)) * 0.75) - has
              return org <= room && (isFirst(one) || org <= common)
            })
          for (const { delivery } of ranked) {
            if (withRoom.some((one) => one.delivery === delivery)) continue
            deliveries.set(delivery.row.delivery_id, { ...delivery, parked: true })
          }
          const turns = new Map<string, number>()
          const inTurns = withRoom
            .map(({ delivery }) => {
              const turn = (turns.get(delivery.orgId) ?? 0) + 1
              turns.set(delivery.orgId, turn)
              return { delivery, turn }
            })
            .sort((a, b) => a.turn - b.turn)
          const taken = inTurns.slice(0, claim.limit).map(({ delivery }) => take(claim, delivery))
          return { deliveries: taken, more: false, short: ofShare > withRoom.length }
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

      countDue: (now, limit) =>
        Effect.sync(() => {
          const due = pending()
            .filter(({ dueAt }) => DateTime.isLessThanOrEqualTo(dueAt!, now))
            .sort(byDue)
          return { count: Math.min(due.length, limit), oldestDueAt: due[0]?.dueAt ?? null }
        }),

      correctTimes: ({ now, leaseUntil, limit }) =>
        Effect.sync(() => {
          const moved = pending()
            .filter(({ claimId, dueAt, parked, attemptsSinceResend }) =>
              claimId === null
                ? (parked || attemptsSinceResend === 0) && DateTime.isGreaterThan(dueAt!, now)
                : DateTime.isGreaterThan(dueAt!, leaseUntil),
            )
            .slice(0, limit)
          for (const delivery of moved) {
            const dueAt = delivery.claimId === null ? now : leaseUntil
            deliveries.set(delivery.row.delivery_id, { ...delivery, dueAt })
          }
          return { moved: moved.length, next: moved.length === limit ? { orgId: "", lane: "" } : null }
        }),
    })
  }),
)
