import { Effect, Layer, Schedule } from "effect"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import type { Unavailable } from "../../domain/Errors.ts"

const everySecond = (what: string, effect: Effect.Effect<void, Unavailable>) =>
  effect.pipe(
    Effect.catch((error) => Effect.logWarning(`${what}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(what, fault)),
    Effect.repeat(Schedule.spaced("1 second")),
    Effect.forkScoped,
  )

/** Once a second: jobs whose lease ran out are put back or failed, and schedules that are due create their jobs. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const jobs = yield* Jobs
    const schedules = yield* JobSchedules
    yield* everySecond("Leases are not checked", jobs.expireLeases)
    yield* everySecond("Schedules do not fire", schedules.fireDue)
  }),
)
