import { Clock, DateTime, Duration, Effect, Layer, Schedule } from "effect"
import {
  type CorrectedTimes,
  DeliveryQueue,
  type QueuePlace,
  type TimesCorrection,
} from "../../domain/webhooks/DeliveryQueue.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"
import { DeliveryWorkerOptions, leaseFor } from "./DeliveryWorker.ts"

/** How far the wall clock may fall behind the monotonic clock between two checks, in milliseconds. */
const maxClockDriftMillis = 1_000
/**
 * How long after a step the worker corrects times, in milliseconds. A transaction that began before the step may commit
 * after it, with times of the old clock.
 */
const correctionMillis = 15_000
/** Deliveries that one statement moves: a statement takes a few hundred milliseconds. */
const correctionBatchSize = 5_000

/**
 * Checks every second whether the wall clock was set back. After a step, corrects the times of pending deliveries, which
 * would otherwise wait until the clock reaches them again. Corrects them at the start too: the clock may have stepped while
 * no process ran.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const { attemptTimeout } = yield* DeliveryWorkerOptions
    const clock = yield* Clock.Clock
    const monotonicMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
    const offset = () => clock.currentTimeMillisUnsafe() - monotonicMillis()
    let lastOffset = offset()
    let correctUntil = monotonicMillis()
    let isCorrectionDue = true

    const correctTimes = Effect.gen(function* () {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      let after: QueuePlace | null = null
      do {
        const correction: TimesCorrection = { now, leaseUntil, limit: correctionBatchSize, after }
        const { moved, next }: CorrectedTimes = yield* queue.correctTimes(correction)
        if (moved > 0) yield* wakeups.deliveries
        after = next
      } while (after !== null)
    })

    const check = Effect.gen(function* () {
      const stepMillis = lastOffset - offset()
      lastOffset -= stepMillis
      if (stepMillis > maxClockDriftMillis) {
        correctUntil = monotonicMillis() + correctionMillis
        yield* Effect.logWarning(
          `The clock was set back by ${Duration.format(Duration.millis(Math.round(stepMillis)))}`,
        )
      }
      isCorrectionDue ||= monotonicMillis() < correctUntil
      if (!isCorrectionDue) return
      yield* correctTimes
      isCorrectionDue = false
    })

    yield* check.pipe(
      Effect.catch((error) => Effect.logWarning(`Times of deliveries are not corrected: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Times of deliveries are not corrected", fault)),
      Effect.repeat(Schedule.spaced("1 second")),
      Effect.forkScoped,
    )
  }),
)
