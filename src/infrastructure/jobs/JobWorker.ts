import { Effect, Layer, Schedule } from "effect"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import type { Unavailable } from "../../domain/Errors.ts"

const everySecond = (problem: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(problem, fault)),
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.forkScoped,
  )

/**
 * Every second: queues or fails jobs whose lease has expired, opens delayed jobs to claims, and creates the jobs of due
 * schedules.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const jobs = yield* Jobs
    const schedules = yield* JobSchedules
    yield* everySecond("Leases are not checked", jobs.expireLeases)
    yield* everySecond("Delayed jobs are not queued", jobs.queueDelayed)
    yield* everySecond("Schedules do not run", schedules.runDue)
  }),
)
