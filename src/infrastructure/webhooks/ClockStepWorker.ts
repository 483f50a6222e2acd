import { Clock, DateTime, Duration, Effect, Layer, Schedule } from "effect"
import { type CorrectedTimes, DeliveryQueue, type QueuePlace } from "../../domain/webhooks/DeliveryQueue.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"
import { DeliveryWorkerOptions, leaseFor } from "./DeliveryWorker.ts"

/** By how many milliseconds the wall clock may fall behind the monotonic one from one look to the next. */
const tolerance = 1_000
/**
 * For how many milliseconds after a step times are put right: a transaction that began before it may be under way, and
 * its times are those of the clock as it was.
 */
const aftermath = 15_000
/** How many deliveries are moved in one statement: few enough to be done in some hundred milliseconds. */
const batch = 5_000

/**
 * Once a second: looks whether the wall clock was set back, and then puts the times of pending deliveries right, which
 * would wait until the clock is there again. At the start as well: the step may have come while no process ran.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const { attemptTimeout } = yield* DeliveryWorkerOptions
    const clock = yield* Clock.Clock
    const monotonic = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
    const offset = () => clock.currentTimeMillisUnsafe() - monotonic()
    let before = offset()
    let until = monotonic()
    let isOwed = true

    const putRight = Effect.gen(function* () {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      let after: QueuePlace | null = null
      do {
        const { moved, next }: CorrectedTimes = yield* queue.correctTimes({ now, leaseUntil, limit: batch, after })
        if (moved > 0) yield* wakeups.deliveries
        after = next
      } while (after !== null)
    })

    const look = Effect.gen(function* () {
      const back = before - offset()
      before -= back
      if (back > tolerance) {
        until = monotonic() + aftermath
        yield* Effect.logWarning(`The clock was set back by ${Duration.format(Duration.millis(Math.round(back)))}`)
      }
      isOwed ||= monotonic() < until
      if (!isOwed) return
      yield* putRight
      isOwed = false
    })

    yield* look.pipe(
      Effect.catch((error) => Effect.logWarning(`Times of deliveries are not put right: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Times of deliveries are not put right", fault)),
      Effect.repeat(Schedule.spaced("1 second")),
      Effect.forkScoped,
    )
  }),
)
