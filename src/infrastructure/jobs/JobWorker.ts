import { Effect, Layer } from "effect"
import { JobSchedules } from "../../domain/jobs/JobSchedules.ts"
import { Jobs } from "../../domain/jobs/Jobs.ts"
import { every } from "../background.ts"

/**
 * Every second: queues or fails jobs whose lease has expired, fails those that nobody has claimed in time, opens
 * delayed jobs to claims, and creates the jobs of due schedules.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const jobs = yield* Jobs
    const schedules = yield* JobSchedules
    yield* every("1 second", "Leases are not checked", jobs.expireLeases)
    yield* every("1 second", "Jobs do not expire", jobs.expireQueued)
    yield* every("1 second", "Delayed jobs are not queued", jobs.queueDelayed)
    yield* every("1 second", "Schedules do not run", schedules.runDue)
  }),
)
