import { Cause, Effect, Exit, Metric, Predicate } from "effect"

const inFlight = Metric.gauge("gatehouse_database_operations_in_flight", {
  description: "Database operations in flight, including those that wait for a connection.",
})

type Outcome = "ok" | "unavailable" | "fault" | "interrupted"

const histogram = (outcome: Outcome) =>
  Metric.histogram("gatehouse_database_operation_duration_seconds", {
    description: "Duration of database operations in seconds, by outcome. Includes the wait for a connection.",
    boundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    attributes: { outcome },
  })
const durations: Record<Outcome, Metric.Histogram<number>> = {
  ok: histogram("ok"),
  unavailable: histogram("unavailable"),
  fault: histogram("fault"),
  interrupted: histogram("interrupted"),
}

/** Limit of the connection pool. With more operations in flight, some wait. */
export const connectionsMax = Metric.gauge("gatehouse_database_connections_max", {
  description: "Limit of the connections that this process opens for database operations.",
})

/** The outcome label of an operation. A declared error, such as a missing row, is `ok`. */
const outcomeOf = (exit: Exit.Exit<unknown, unknown>): Outcome => {
  if (Exit.isSuccess(exit)) return "ok"
  if (Cause.hasDies(exit.cause)) return "fault"
  if (Cause.hasInterrupts(exit.cause)) return "interrupted"
  return exit.cause.reasons.some((_) => _._tag === "Fail" && Predicate.isTagged(_.error, "Unavailable"))
    ? "unavailable"
    : "ok"
}

/** Measures the number of operations in flight and the duration of this one. */
export const measured = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
  Effect.withFiber<A, E, R>(({ context }) => {
    const startedAt = performance.now()
    inFlight.modifyUnsafe(1, context)
    return Effect.onExit(operation, (exit) => {
      inFlight.modifyUnsafe(-1, context)
      durations[outcomeOf(exit)].updateUnsafe((performance.now() - startedAt) / 1000, context)
      return Effect.void
    })
  })
