import { Clock, DateTime, Duration, Effect, Layer } from "effect"
import type { Claim } from "#src/domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { orderedBatchSize, throttleHorizonMillis, throttleMargin } from "#src/domain/webhooks/Slots.ts"
import { signingKeysOf } from "./WebhookEndpoints.ts"
import { decideAgain, recordAttempt, recordEndpoints } from "./recordAttempts.ts"
import type { StoredDelivery } from "./WebhookWorld.ts"
import { sentBody } from "#src/domain/webhooks/Event.ts"
import { cancelPending, WebhookWorld } from "./WebhookWorld.ts"

const byDue = (a: StoredDelivery, b: StoredDelivery) => Duration.toMillis(DateTime.distance(b.dueAt!, a.dueAt!))

interface Ranked {
  readonly delivery: StoredDelivery
  /** The position in its lane, from 1. */
  readonly rank: number
}

/** The due deliveries: the first of each lane before the second of any. */
const rankByLane = (
  due: ReadonlyArray<StoredDelivery>,
  isOrdered: (lane: string) => boolean,
): ReadonlyArray<Ranked> => {
  const ranks = new Map<string, number>()
  return due
    .toSorted((a, b) => (a.lane === b.lane && isOrdered(a.lane) ? a.place - b.place : byDue(a, b)))
    .map((delivery) => {
      const rank = (ranks.get(delivery.lane) ?? 0) + 1
      ranks.set(delivery.lane, rank)
      return { delivery, rank }
    })
    .sort((a, b) => a.rank - b.rank)
}

/**
 * The deliveries with a free slot in their lane and in the share of their org, and whether an org had no share left.
 */
const inShares = (
  claim: Claim,
  ranked: ReadonlyArray<Ranked>,
  isFailing: (lane: string) => boolean,
  isOrdered: (lane: string) => boolean,
  batchMax: (lane: string) => number,
) => {
  const shareOf = (lane: string) => ({ count: 0, cap: claim.laneCap, works: false, ...claim.lanes.get(lane) })
  /** Whether its lane works, or it is the first of a lane with no delivery in the process. */
  const isFirst = ({ delivery: { lane }, rank }: Ranked) =>
    shareOf(lane).works || (shareOf(lane).count === 0 && rank === 1)
  const withLaneRoom = ranked
    .filter(({ delivery: { lane }, rank }) => {
      const { cap, count } = shareOf(lane)
      const own = isOrdered(lane) ? Math.max(cap, orderedBatchSize) : cap + batchMax(lane)
      return rank <= (isFailing(lane) ? 1 : own) - count
    })
    .sort((a, b) => Number(isFirst(b)) - Number(isFirst(a)))
  const orgCounts = new Map<string, number>()
  const chosen = withLaneRoom.filter((one) => {
    const { orgId } = one.delivery
    const count = (orgCounts.get(orgId) ?? 0) + 1
    orgCounts.set(orgId, count)
    const claimed = claim.orgs.get(orgId)?.count ?? 0
    const { free, reserve } = claim
    const room = Math.ceil((free.count - reserve * claimed) / (1 + reserve))
    const commonRoom = Math.ceil(((free.count + claimed) / (1 + reserve)) * 0.75) - claimed
    return count <= room && (isFirst(one) || count <= commonRoom)
  })
  return { chosen, short: withLaneRoom.length > chosen.length }
}

/** The first delivery of each org before the second of any. */
const orgsRoundRobin = (chosen: ReadonlyArray<Ranked>): ReadonlyArray<StoredDelivery> => {
  const turns = new Map<string, number>()
  return chosen
    .map(({ delivery }) => {
      const turn = (turns.get(delivery.orgId) ?? 0) + 1
      turns.set(delivery.orgId, turn)
      return { delivery, turn }
    })
    .sort((a, b) => a.turn - b.turn)
    .map(({ delivery }) => delivery)
}

/** Gives a delivery the claim's lease, and returns it for the worker. */
const take = (
  world: WebhookWorld["Service"],
  { claimId, leaseUntil, now }: Claim,
  delivery: StoredDelivery,
  delayMillis: number | null,
) => {
  const { deliveries, endpoints, jobs, failingCallbacks } = world
  const { row, payload, lane, attemptsSinceResend } = delivery
  deliveries.set(row.delivery_id, { ...delivery, claimId, dueAt: leaseUntil, backlogged: false })
  const endpoint = endpoints.get(row.webhook_endpoint_id ?? "")
  const { auth, headers } = endpoint?.settings ?? {}
  const job = jobs.get(row.job_id ?? "")!
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
    signingKeys: (endpoint === undefined ? [] : signingKeysOf(world, delivery.orgId, endpoint.settings, now)).map(
      (stored) => ({ stored, owner: delivery.orgId }),
    ),
    headers: headers == null ? null : { stored: headers.stored, owner: row.webhook_endpoint_id! },
    auth: auth == null ? null : { stored: auth.stored, owner: row.webhook_endpoint_id! },
    retryDelays: endpoint?.settings.retryDelays ?? null,
    ordered: endpoint?.settings.ordered === true,
    delayMillis,
    eventId: row.event_id,
    event: row.event,
    body: sentBody(endpoint?.settings.payload ?? "envelope", payload),
    bytes: Buffer.byteLength(payload),
    headerNames: endpoint?.settings.headerNames ?? "webhook",
    batchMax: endpoint?.settings.batch?.max ?? null,
    attempts: row.attempts,
    attemptsSinceResend,
    failingSince: endpoint?.failingSince ?? null,
    failures: endpoint?.failures ?? (failingCallbacks.has(lane) ? 1 : 0),
  }
}

/** The deliveries that the lane's order leaves: without a gap from its first one, and none while some are in flight. */
const inOrder = (world: WebhookWorld["Service"], claim: Claim, due: ReadonlyArray<StoredDelivery>) =>
  due.filter((delivery) => {
    const { lane, place } = delivery
    if (world.endpoints.get(lane)?.settings.ordered !== true) return true
    if ((claim.lanes.get(lane)?.count ?? 0) > 0) return false
    return ![...world.deliveries.values()].some(
      (other) => other.lane === lane && other.row.state === "pending" && other.place < place && !due.includes(other),
    )
  })

/**
 * The time of each delivery's attempt in a lane with a limit per second, by the clock that all replicas share; those
 * beyond the horizon are left.
 */
const throttled = (world: WebhookWorld["Service"], at: number, chosen: ReadonlyArray<StoredDelivery>) =>
  chosen.flatMap((delivery): ReadonlyArray<{ delivery: StoredDelivery; delayMillis: number | null }> => {
    const limit = world.endpoints.get(delivery.lane)?.settings.maxPerSecond
    if (limit == null) return [{ delivery, delayMillis: null }]
    const ahead = (world.throttles.get(delivery.lane) ?? at) - at
    const wasSetBack = ahead > throttleHorizonMillis + 1000 * throttleMargin
    const next = at + (wasSetBack ? throttleHorizonMillis : Math.max(0, ahead))
    if (next - at > throttleHorizonMillis) return []
    world.throttles.set(delivery.lane, next + (1000 * throttleMargin) / limit)
    return [{ delivery, delayMillis: next - at }]
  })

/** The queue in memory. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.map(WebhookWorld, (world) => {
    const { deliveries, endpoints } = world
    const pending = () => [...deliveries.values()].filter(({ row, dueAt }) => row.state === "pending" && dueAt !== null)

    /** A backlog is due whatever the clock says, unless a claim has it or, in order, it waits for a retry. */
    const isDue =
      (now: DateTime.Utc) =>
      ({ claimId, dueAt, lane, backlogged }: StoredDelivery) =>
        (backlogged && claimId === null && !isOrdered(lane)) || DateTime.isLessThanOrEqualTo(dueAt!, now)

    const isOrdered = (lane: string) => endpoints.get(lane)?.settings.ordered === true
    const batchMax = (lane: string) => endpoints.get(lane)?.settings.batch?.max ?? 0
    const isFailing = (lane: string) => endpoints.get(lane)?.failingSince != null || world.failingCallbacks.has(lane)

    return DeliveryQueue.of({
      claim: (claim) =>
        Effect.map(Clock.currentTimeMillis, (at) => {
          const due = pending().filter(isDue(claim.now))
          const ranked = rankByLane(inOrder(world, claim, due), isOrdered)
          const { chosen, short } = inShares(claim, ranked, isFailing, isOrdered, batchMax)
          for (const one of ranked) {
            if (!chosen.includes(one))
              deliveries.set(one.delivery.row.delivery_id, { ...one.delivery, backlogged: true })
          }
          const taken = orgsRoundRobin(chosen).slice(0, claim.limit)
          const timed = throttled(world, at, taken)
          return {
            deliveries: timed.map(({ delayMillis, delivery }) => take(world, claim, delivery, delayMillis)),
            more: false,
            short,
            throttledUntil: timed.length < taken.length ? DateTime.add(claim.now, { milliseconds: 1 }) : null,
          }
        }),

      record: (records, now) =>
        Effect.sync(() => {
          const claimed = records.filter(({ delivery }) => {
            const { claimId } = deliveries.get(delivery.deliveryId) ?? { claimId: null }
            return claimId === delivery.claimId
          })
          const current = decideAgain(world, claimed, now)
          const deactivated = recordEndpoints(world, current, now)
          for (const record of current) recordAttempt(world, record, now)
          for (const id of deactivated) cancelPending(world, id, now)
        }),

      release: (claimed, now) =>
        Effect.sync(() => {
          for (const { deliveryId, claimId } of claimed) {
            const delivery = deliveries.get(deliveryId)
            if (delivery?.claimId !== claimId) continue
            const isPending = delivery.row.state === "pending"
            deliveries.set(deliveryId, {
              ...delivery,
              claimId: null,
              dueAt: isPending ? now : null,
              backlogged: isPending,
            })
          }
        }),

      look: Effect.succeed({ found: false, waitMillis: 1_000 }),

      nextDueAt: Effect.sync(
        () =>
          pending()
            .filter(({ claimId, backlogged }) => !backlogged && claimId === null)
            .sort(byDue)[0]?.dueAt ?? null,
      ),

      countDue: (now, limit) =>
        Effect.sync(() => {
          const due = pending().filter(isDue(now)).sort(byDue)
          return {
            count: Math.min(due.length, limit),
            oldestDueAt: due[0] === undefined ? null : DateTime.min(due[0].dueAt!, now),
          }
        }),

      correctTimes: ({ now, leaseUntil, limit }) =>
        Effect.sync(() => {
          const moved = pending()
            .filter(({ claimId, dueAt, backlogged, attemptsSinceResend }) =>
              claimId === null
                ? !backlogged && attemptsSinceResend === 0 && DateTime.isGreaterThan(dueAt!, now)
                : DateTime.isGreaterThan(dueAt!, leaseUntil),
            )
            .slice(0, limit)
          for (const delivery of moved) {
            const dueAt = delivery.claimId === null ? now : leaseUntil
            deliveries.set(delivery.row.delivery_id, { ...delivery, dueAt })
          }
          return moved.length
        }),
    })
  }),
)
