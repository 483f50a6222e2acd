import { Clock, DateTime, Duration, Effect, Layer } from "effect"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { Wakeups } from "../../domain/Wakeups.ts"
import { every } from "../background.ts"
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
 * Checks every second whether the wall clock was set back. After a step, corrects the times of pending deliveries,
 * which would otherwise wait until the clock reaches them again. Corrects them at the start too: the clock may have
 * stepped while no process ran.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const { attemptTimeout } = yield* DeliveryWorkerOptions
    const clock = yield* Clock.Clock
    const nowMillis = () => monotonicMillisOf(clock)
    const offset = () => clock.currentTimeMillisUnsafe() - nowMillis()
    let lastOffset = offset()
    let correctUntil = nowMillis()
    let isCorrectionDue = true

    const correctTimes = Effect.gen(function* () {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const batch = queue
        .correctTimes({ now, leaseUntil, limit: correctionBatchSize })
        .pipe(Effect.tap((moved) => (moved > 0 ? wakeups.deliveries : Effect.void)))
      yield* Effect.repeat(batch, { while: (moved) => moved === correctionBatchSize })
    })

    const check = Effect.gen(function* () {
      const stepMillis = lastOffset - offset()
      lastOffset -= stepMillis
      if (stepMillis > maxClockDriftMillis) {
        correctUntil = nowMillis() + correctionMillis
        yield* Effect.logWarning(
          `The clock was set back by ${Duration.format(Duration.millis(Math.round(stepMillis)))}`,
        )
      }
      isCorrectionDue ||= nowMillis() < correctUntil
      if (!isCorrectionDue) return
      yield* correctTimes
      isCorrectionDue = false
    })

    yield* every("1 second", "Times of deliveries are not corrected", check)
  }),
)
