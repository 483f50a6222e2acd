import { Context, DateTime, Duration, Effect, Latch, Layer, Queue, Schedule, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { DeliveryQueue, Dispatcher } from "../../domain/DeliveryQueue.ts"
import { Wakeups } from "../../domain/Wakeups.ts"

export interface DeliveryWorkerOptions {
  /** Attempts in flight in this process. */
  readonly maxInFlight: number
  /** Attempts in flight to one receiver. */
  readonly laneCap: number
  /** How long a claim holds: longer than an attempt and its record take. */
  readonly lease: Duration.Duration
}

export const defaultOptions: DeliveryWorkerOptions = { maxInFlight: 512, laneCap: 10, lease: Duration.seconds(60) }

/** How the delivery worker goes about it. */
export const DeliveryWorkerOptions = Context.Reference<DeliveryWorkerOptions>(
  "gatehouse/infrastructure/workers/Deliveries/DeliveryWorkerOptions",
  { defaultValue: () => defaultOptions },
)

/** The most that one claim or one record has in it. */
const batch = 256
/** How long the worker waits at most before it looks again: for what another replica left behind. */
const patience = Duration.seconds(5)

/** The attempts under way here, by lane. */
const makeInFlight = Effect.map(Latch.make(true), (idle) => {
  const lanes = new Map<string, number>()
  let total = 0
  return {
    lanes,
    total: () => total,
    /** Waits until there are none. */
    untilIdle: idle.await,
    add: ({ lane }: ClaimedDelivery) =>
      Effect.suspend(() => {
        total++
        lanes.set(lane, (lanes.get(lane) ?? 0) + 1)
        return idle.close
      }),
    remove: ({ lane }: ClaimedDelivery) =>
      Effect.suspend(() => {
        total--
        const left = lanes.get(lane)! - 1
        if (left === 0) lanes.delete(lane)
        else lanes.set(lane, left)
        return total === 0 ? idle.open : Effect.void
      }),
  }
})

/**
 * The delivery worker: claims what is due, makes the attempts, records them in batches, and claims again. Backlog stays
 * in the database. At its end nothing more is claimed, and the attempts in flight are finished and recorded.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const dispatcher = yield* Dispatcher
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const { maxInFlight, laneCap, lease } = yield* DeliveryWorkerOptions
    const inFlight = yield* makeInFlight
    const finished = yield* Queue.unbounded<AttemptRecord>()
    const woken = yield* Queue.sliding<void>(1)
    const wake = Queue.offer(woken, undefined)

    // Detached: the end of the worker waits for attempts, it does not interrupt them.
    const attempt = (delivery: ClaimedDelivery) =>
      dispatcher.attempt(delivery).pipe(
        Effect.flatMap((made) => Queue.offer(finished, made)),
        Effect.catchCause((cause) =>
          Effect.andThen(
            Effect.logError("An attempt could not be made; it is made again when its lease has run out", cause),
            inFlight.remove(delivery),
          ),
        ),
        Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
        Effect.forkDetach,
      )

    const record = Effect.gen(function* () {
      const records = yield* Queue.takeBetween(finished, 1, batch)
      yield* queue.record(records, yield* DateTime.now).pipe(
        Effect.tapError((error) => Effect.logWarning(`Attempts are not recorded yet: ${error.error}`)),
        Effect.retry(Schedule.spaced("1 second")),
        Effect.catchCause((cause) => Effect.logError("Attempts could not be recorded; they are made again", cause)),
      )
      // Only now is the slot free: the next claim has to know whether the receiver fails.
      yield* Effect.forEach(records, ({ delivery }) => inFlight.remove(delivery), { discard: true })
      yield* wake
    })

    const claim = Effect.gen(function* () {
      const limit = Math.min(batch, maxInFlight - inFlight.total())
      if (limit <= 0) return []
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, lease)
      const claimId = yield* random.ulid
      return yield* queue.claim({ claimId, now, leaseUntil, limit, laneCap, inFlight: inFlight.lanes })
    })

    const waitForWork = Effect.gen(function* () {
      const dueAt = yield* queue.nextDueAt
      const now = yield* DateTime.now
      const untilDue = dueAt === null ? patience : Duration.max(DateTime.distance(now, dueAt), Duration.zero)
      yield* Effect.timeoutOption(Queue.take(woken), Duration.min(patience, untilDue))
    })

    const begin = Effect.gen(function* () {
      const claimed = yield* claim
      yield* Effect.forEach(claimed, (delivery) => Effect.andThen(inFlight.add(delivery), attempt(delivery)))
      return claimed.length
      // What was claimed is begun, or it would wait for its lease to run out.
    }).pipe(Effect.uninterruptible)

    const work = Effect.gen(function* () {
      if ((yield* begin) === 0) yield* waitForWork
    }).pipe(
      Effect.catch((error) =>
        Effect.andThen(Effect.logWarning(`No deliveries can be claimed: ${error.error}`), Effect.sleep("1 second")),
      ),
    )

    // Ended in the opposite order: no more claims, then the attempts, then their records.
    yield* Effect.forkScoped(Effect.forever(record))
    yield* Effect.addFinalizer(() => Effect.timeoutOption(inFlight.untilIdle, lease))
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => wake))
  }),
)
