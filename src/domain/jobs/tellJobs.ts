import { Effect } from "effect"
import { Counter } from "../activity/ActivityRecorder.ts"
import { Publish } from "../activity/LiveFeed.ts"
import type { JobStatus } from "./Job.ts"

/**
 * Makes `tell`, which publishes the new status of jobs and counts those that have ended. `null`: nothing has changed.
 */
export const makeTell = Effect.gen(function* () {
  const [publish, { count }] = [yield* Publish, yield* Counter]
  return (orgId: string, jobIds: ReadonlyArray<string>, status: JobStatus | null) => {
    if (status === null) return
    if (status !== "queued" && status !== "running") jobIds.forEach(() => count(orgId, "jobs", status))
    publish(() => jobIds.map((jobId) => ({ topic: "job", orgId, data: { jobId, status } })))
  }
})
