import { DateTime, Duration, Effect, Fiber, Metric } from "effect"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { SweepRepository } from "../../domain/sweeps/Sweeps.ts"

const due = Metric.gauge("gatehouse_deliveries_due", {
  description: "Deliveries that are due and not claimed, of all replicas; counted up to 100000.",
})
const oldestDue = Metric.gauge("gatehouse_deliveries_oldest_due_seconds", {
  description: "How long the oldest due delivery has been due, in seconds; 0 when none is due.",
})

const openSweeps = Metric.gauge("gatehouse_sweeps_open", {
  description: "Background changes of many rows that are not finished, of all replicas; counted up to 1000.",
})
/** The count of sweeps stops here. */
const maxSweeps = 1_000

/** The count of due deliveries stops here: the statement must stay fast. */
const maxDue = 100_000

/** Updates the gauges of the backlog from the database. Removes them when the database does not answer. */
export const measureBacklog = Effect.gen(function* () {
  const queue = yield* DeliveryQueue
  const sweeps = yield* SweepRepository
  const now = yield* DateTime.now
  // Detached: on a dead connection, the interruption of a statement takes longer than the statement.
  const counts = yield* Effect.forkDetach(Effect.all([queue.countDue(now, maxDue), sweeps.count(maxSweeps)]))
  const [{ count, oldestDueAt }, open] = yield* Effect.timeout(Fiber.join(counts), "2 seconds")
  yield* Metric.update(openSweeps, open)
  yield* Metric.update(due, count)
  const age = oldestDueAt === null ? 0 : Duration.toSeconds(DateTime.distance(oldestDueAt, now))
  yield* Metric.update(oldestDue, age)
}).pipe(
  Effect.catchCause((cause) =>
    Effect.logDebug("The backlog cannot be measured", cause).pipe(
      Effect.andThen(Metric.remove(openSweeps)),
      Effect.andThen(Metric.remove(due)),
      Effect.andThen(Metric.remove(oldestDue)),
    ),
  ),
)
