import { DateTime, Effect } from "effect"
import { Conflict } from "../Errors.ts"
import type { Job } from "./Job.ts"

/** The outcome of a finished job. */
export interface JobOutcome {
  readonly status: "completed" | "failed"
  readonly result: unknown
  readonly error: string | null
  readonly mapped_stack: unknown
}

export const completed = (result: unknown): JobOutcome => ({
  status: "completed",
  result,
  error: null,
  mapped_stack: null,
})
export const failed = (error: string, mapped_stack: unknown): JobOutcome => ({
  status: "failed",
  result: null,
  error,
  mapped_stack,
})
/** The outcome of a job whose last lease expired. */
export const leaseExpired = failed("lease expired", null)

/** The job to finish, and when. */
export interface JobEnd {
  readonly orgId: string
  readonly jobId: string
  /** The nonce of the event: 32 hex characters. */
  readonly nonce: string
  readonly now: DateTime.Utc
}

export const otherOutcome = () => new Conflict({ error: "The job is finished with the other outcome." })
export const notRunning = () => new Conflict({ error: "The job is not running: nobody holds a lease on it." })

type State = Pick<Job, "status" | "lease_expires_at">

/** Whether a job is unfinished; `false` when it has the same outcome. Fails with a `Conflict` when it has the other one. */
export const isUnfinished = (job: State, outcome: JobOutcome): Effect.Effect<boolean, Conflict> => {
  if (job.status === outcome.status) return Effect.succeed(false)
  return job.status === "completed" || job.status === "failed" ? otherOutcome() : Effect.succeed(true)
}

/** `isUnfinished` for a job whose lease expired. Fails with a `Conflict` also when the lease has not expired. */
export const isUnfinishedAndExpired = (job: State, now: DateTime.Utc): Effect.Effect<boolean, Conflict> =>
  Effect.flatMap(isUnfinished(job, leaseExpired), (unfinished) =>
    unfinished && (job.lease_expires_at === null || DateTime.isGreaterThan(job.lease_expires_at, now))
      ? notRunning()
      : Effect.succeed(unfinished),
  )
