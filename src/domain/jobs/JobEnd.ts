import { DateTime, Result } from "effect"
import { Conflict } from "../Errors.ts"
import { type JobStatus, maxErrorLength } from "./Job.ts"
import { cut } from "../Schemas.ts"

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

/** The outcome of a job that nobody has claimed in time. */
const expired = failed("expired: no worker claimed the job in time", null)

/** What is reported about a job. */
export type JobReport =
  | {
      readonly _tag: "Ended"
      readonly outcome: JobOutcome
      /** The attempt that reports: the fence. `undefined` accepts any attempt. */
      readonly attempt: number | undefined
      /** Whether a failed job is queued again while it has attempts left. */
      readonly retry: boolean
    }
  | { readonly _tag: "LeaseExpired" }
  /** Nobody has claimed the job in time. */
  | { readonly _tag: "Expired" }
  | { readonly _tag: "Canceled" }

/** The job of a report, and when. */
export interface JobEnd {
  readonly orgId: string
  readonly jobId: string
  /** The id of the event, or of the cancellation. Its time is not before that of the job's id. */
  readonly endId: string
  /** The nonce of the event: 32 hex characters. */
  readonly nonce: string
  readonly now: DateTime.Utc
}

/** The id of an end: a new one, with the time of the job's id if that is later, by the clock of another replica. */
export const endIdOf = (jobId: string, made: string) => (made < jobId ? jobId.slice(0, 10) + made.slice(10) : made)

/** The fields of a job that decide what a report changes. */
export interface JobState {
  readonly status: JobStatus
  /** How often the job was claimed; the running attempt of a running job. */
  readonly attempt: number
  /** The attempts before somebody retried the failed job. */
  readonly attemptsBefore: number
  readonly lease_expires_at: DateTime.Utc | null
  readonly max_attempts: number
  readonly retry_delay_seconds: number
  /** The retries of its workflow, in place of its own. */
  readonly retryPolicy: RetryPolicy | null
  /** `null`: it does not expire. */
  readonly expires_at: DateTime.Utc | null
  /** The attempt whose report finished the job. `null`: no report of a running attempt did, or it is unfinished. */
  readonly finishedAttempt: number | null
  /** The last attempts that failed with a retry. */
  readonly retriedAttempts: ReadonlyArray<number>
  /** Whether a newer unfinished job has its unique key. */
  readonly isReplaced: boolean
}

/** What a report changes. */
export type JobDecision =
  /** `by`: the running attempt that reported it. `null`: no attempt did. */
  | { readonly _tag: "Finish"; readonly outcome: JobOutcome; readonly by: number | null }
  | { readonly _tag: "Retry"; readonly outcome: JobOutcome; readonly runAt: DateTime.Utc }
  | { readonly _tag: "Cancel" }
  | { readonly _tag: "Unchanged" }

export interface ReportedChange {
  /** The new status of the job. `null`: the report changed nothing. */
  readonly status: JobStatus | null
  /** Whether a sweep was created, for the deliveries to the rest of many endpoints. */
  readonly hasSweep: boolean
}

/** The status of a job after a decision; `null` when it does not change. */
export const statusAfter = (decision: JobDecision): JobStatus | null => {
  switch (decision._tag) {
    case "Finish":
      return decision.outcome.status
    case "Retry":
      return "queued"
    case "Cancel":
      return "canceled"
    case "Unchanged":
      return null
  }
}

const unchanged: JobDecision = { _tag: "Unchanged" }

const otherOutcomeConflict = () =>
  new Conflict({ error: "The job has already finished with another outcome; the first outcome stays." })
const notRunningConflict = () =>
  new Conflict({ error: "The job is not running: no worker has a lease on it. Claim it first." })
const returningConflict = () => new Conflict({ error: "The job has attempts left: it returns to the queue." })
const canceledConflict = () => new Conflict({ error: "The job is canceled: stop the work." })
const finishedConflict = () => new Conflict({ error: "The job has already finished and cannot be canceled." })
const claimedConflict = () => new Conflict({ error: "The job has not expired: a worker has claimed it." })
const otherAttempt = (attempt: number) =>
  new Conflict({
    error: `Attempt ${attempt} of the job is not running: its lease expired, or it has ended. Stop the work.`,
  })

/** The longest wait of a job without a retry policy, in seconds, and of a policy that doubles without `max_seconds`. */
export const maxOwnDelaySeconds = 3600

/** How the jobs of a workflow are tried again. */
export interface RetryPolicy {
  readonly attempts: number
  /** The waits, in seconds; the last one repeats. */
  readonly delays?: ReadonlyArray<number>
  /** The first wait, in seconds, which doubles up to `max_seconds`. */
  readonly base_seconds?: number
  readonly max_seconds?: number
}

/** The longest change of a wait of a policy, as a part of it: jobs that fail together are not tried together. */
const jitter = 0.2

/** The wait after a failed attempt by a policy, in seconds. The job has its own waits when the policy has none. */
const policyDelay = (policy: RetryPolicy, own: number, attempt: number, nonce: string) => {
  const { base_seconds: base, delays, max_seconds: max = maxOwnDelaySeconds } = policy
  const delay =
    delays === undefined
      ? Math.min(max, (base ?? own) * 2 ** (attempt - 1))
      : delays[Math.min(attempt, delays.length) - 1]!
  // Random, but the same each time that the report is decided.
  const chance = Number.parseInt(nonce.slice(0, 8), 16) / 2 ** 32
  return delay * (1 - jitter + 2 * jitter * chance)
}

/** The wait after a failed attempt, in seconds. It doubles with each attempt, up to an hour. */
export const retryDelay = (retryDelaySeconds: number, attempt: number) =>
  Math.min(maxOwnDelaySeconds, retryDelaySeconds * 2 ** (attempt - 1))

/** Attempts that are remembered: a report is repeated within seconds. */
const maxRetriedAttempts = 20

/** `retriedAttempts` of a job whose running attempt is retried. */
export const withRetried = ({ attempt, retriedAttempts }: Pick<JobState, "attempt" | "retriedAttempts">) =>
  [...retriedAttempts, attempt].slice(-maxRetriedAttempts)

const finish = ({ attempt, status }: JobState, outcome: JobOutcome): JobDecision => ({
  _tag: "Finish",
  outcome,
  by: status === "running" ? attempt : null,
})

/** The outcome of a job that would be queued again while a newer unfinished job has its unique key. */
const replaced = ({ error, mapped_stack }: JobOutcome) =>
  failed(cut(`replaced: a newer job has its unique key. ${error}`, maxErrorLength), mapped_stack)

const hasAttemptsLeft = ({ attempt, attemptsBefore, max_attempts, retryPolicy }: JobState) =>
  attempt < (retryPolicy === null ? max_attempts : attemptsBefore + retryPolicy.attempts)

/** The decision about a failure with a retry. */
const retryOrFinish = (job: JobState, outcome: JobOutcome, now: DateTime.Utc, nonce: string): JobDecision => {
  const { attempt, attemptsBefore, retryPolicy, retry_delay_seconds: own } = job
  // Queued again already, by an expired lease or by an earlier report. A job that was never claimed has no attempt to
  // retry.
  if (job.status === "queued" && job.attempt > 0) return unchanged
  if (job.status !== "running" || !hasAttemptsLeft(job)) return finish(job, outcome)
  if (job.isReplaced) return finish(job, replaced(outcome))
  const tried = attempt - attemptsBefore
  const seconds = retryPolicy === null ? retryDelay(own, tried) : policyDelay(retryPolicy, own, tried, nonce)
  return { _tag: "Retry", outcome, runAt: DateTime.add(now, { milliseconds: Math.round(1000 * seconds) }) }
}

/** Whether a job has expired: nobody has claimed it in time. */
const isExpired = ({ attempt, expires_at, status }: JobState, now: DateTime.Utc) =>
  status === "queued" && attempt === 0 && expires_at !== null && DateTime.isLessThanOrEqualTo(expires_at, now)

/** When a report is decided, and its chance. */
type Decided = Pick<JobEnd, "nonce" | "now">
type Ended = Extract<JobReport, { readonly _tag: "Ended" }>

/** Whether the attempt has reported the same before. */
const isRepeated = (job: JobState, { attempt, outcome, retry }: Ended & { readonly attempt: number }) =>
  (job.status === outcome.status && job.finishedAttempt === attempt) || (retry && job.retriedAttempts.includes(attempt))

const decideEnded = (job: JobState, report: Ended, { nonce, now }: Decided): Result.Result<JobDecision, Conflict> => {
  const { attempt, outcome, retry } = report
  if (attempt !== undefined && (job.status !== "running" || job.attempt !== attempt)) {
    if (isRepeated(job, { ...report, attempt })) return Result.succeed(unchanged)
    if (job.status === "canceled") return Result.fail(canceledConflict())
    return Result.fail(job.finishedAttempt === attempt ? otherOutcomeConflict() : otherAttempt(attempt))
  }
  if (job.status === outcome.status) return Result.succeed(unchanged)
  if (job.status === "canceled") return Result.fail(canceledConflict())
  if (job.status === "completed" || job.status === "failed") return Result.fail(otherOutcomeConflict())
  return Result.succeed(retry ? retryOrFinish(job, outcome, now, nonce) : finish(job, outcome))
}

const decideLeaseExpired = (job: JobState, now: DateTime.Utc): Result.Result<JobDecision, Conflict> => {
  if (job.status === "failed") return Result.succeed(unchanged)
  if (job.status === "completed") return Result.fail(otherOutcomeConflict())
  const hasExpired = job.lease_expires_at !== null && DateTime.isLessThanOrEqualTo(job.lease_expires_at, now)
  if (job.status !== "running" || !hasExpired) return Result.fail(notRunningConflict())
  if (!hasAttemptsLeft(job)) return Result.succeed({ _tag: "Finish", outcome: leaseExpired, by: null })
  // What had replaced it has finished meanwhile: the next batch of expired leases queues it again.
  return job.isReplaced
    ? Result.succeed({ _tag: "Finish", outcome: replaced(leaseExpired), by: null })
    : Result.fail(returningConflict())
}

/** Decides what a report changes. Fails with a `Conflict` when the state of the job does not allow it. */
export const decide = (job: JobState, report: JobReport, end: Decided): Result.Result<JobDecision, Conflict> => {
  switch (report._tag) {
    case "Ended":
      return decideEnded(job, report, end)
    case "LeaseExpired":
      return decideLeaseExpired(job, end.now)
    case "Expired":
      return isExpired(job, end.now) ? Result.succeed(finish(job, expired)) : Result.fail(claimedConflict())
    case "Canceled":
      if (job.status === "canceled") return Result.succeed(unchanged)
      return job.status === "queued" || job.status === "running"
        ? Result.succeed({ _tag: "Cancel" })
        : Result.fail(finishedConflict())
  }
}

/** Why a heartbeat does not extend the lease of a job. */
export const refusedHeartbeat = (
  { attempt, status }: Pick<JobState, "attempt" | "status">,
  fence: number | undefined,
) => {
  if (status === "canceled") return canceledConflict()
  return status === "running" && fence !== undefined && fence !== attempt ? otherAttempt(fence) : notRunningConflict()
}
