import { assert, describe, it } from "@effect/vitest"
import { DateTime, Result } from "effect"
import {
  completed,
  decide,
  failed,
  type JobDecision,
  type JobReport,
  type JobState,
  leaseExpired,
  refusedHeartbeat,
  retryDelay,
  type RetryPolicy,
  withRetried,
} from "#src/domain/jobs/JobEnd.ts"

/**
 * Promise (Limits of workflows): A policy of a workflow decides the attempts and waits of its jobs; a job that nobody
 * claims in time fails, and one that was claimed does not.
 */

/** A nonce whose chance is a half: a wait is neither shorter nor longer. */
const half = "8".padEnd(32, "0")
const at = (seconds: number) => DateTime.makeUnsafe(seconds * 1000)
const queued: JobState = {
  status: "queued",
  attempt: 0,
  lease_expires_at: null,
  max_attempts: 3,
  retry_delay_seconds: 10,
  retryPolicy: null,
  expires_at: null,
  finishedAttempt: null,
  retriedAttempts: [],
  isReplaced: false,
  attemptsBefore: 0,
}
const running: JobState = { ...queued, status: "running", attempt: 2, lease_expires_at: at(60) }
const ended = (status: "completed" | "failed", finishedAttempt: number | null): JobState => ({
  ...queued,
  status,
  attempt: 2,
  finishedAttempt,
})
const canceled: JobState = { ...queued, status: "canceled", attempt: 2 }

const complete = (attempt?: number): JobReport => ({ _tag: "Ended", outcome: completed(1), attempt, retry: false })
const fail = (attempt?: number, retry = false): JobReport => ({
  _tag: "Ended",
  outcome: failed("boom", null),
  attempt,
  retry,
})
const cancel: JobReport = { _tag: "Canceled" }
const expired: JobReport = { _tag: "LeaseExpired" }

/** The decision on a report, or the sentence of the conflict. */
const decisionOn = (job: JobState, report: JobReport, now = at(0)) => {
  const decision = decide(job, report, { now, nonce: half })
  if (Result.isFailure(decision)) return decision.failure.error
  const { success } = decision
  if (success._tag === "Finish")
    return success.outcome.error === leaseExpired.error ? "Expired" : success.outcome.status
  return success._tag === "Retry" ? DateTime.toEpochMillis(success.runAt) / 1000 : success._tag
}
const other = "The job has already finished with another outcome; the first outcome stays."
const notRunning = "The job is not running: no worker has a lease on it. Claim it first."
const over = (attempt: number) =>
  `Attempt ${attempt} of the job is not running: its lease expired, or it has ended. Stop the work.`

describe("the end of a job", () => {
  it("without an attempt, any worker ends a queued or running job, and the first outcome stays", () => {
    for (const job of [queued, running]) {
      assert.deepStrictEqual([decisionOn(job, complete()), decisionOn(job, fail())], ["completed", "failed"])
    }
    for (const finishedAttempt of [null, 2]) {
      assert.strictEqual(decisionOn(ended("completed", finishedAttempt), complete()), "Unchanged")
      assert.strictEqual(decisionOn(ended("completed", finishedAttempt), fail()), other)
      assert.strictEqual(decisionOn(ended("failed", finishedAttempt), complete()), other)
      assert.strictEqual(decisionOn(ended("failed", finishedAttempt), fail()), "Unchanged")
    }
    for (const report of [complete(), fail(), fail(undefined, true)]) {
      assert.strictEqual(decisionOn(canceled, report), "The job is canceled: stop the work.")
    }
  })

  it("with an attempt, only the running attempt ends the job", () => {
    assert.deepStrictEqual([decisionOn(running, complete(2)), decisionOn(running, fail(2))], ["completed", "failed"])
    for (const attempt of [1, 3, 2_000_000_000]) {
      for (const report of [complete(attempt), fail(attempt), fail(attempt, true)]) {
        for (const job of [queued, running, { ...queued, attempt: 1 }, ended("completed", 2), ended("failed", null)]) {
          assert.strictEqual(decisionOn(job, report), over(attempt))
        }
      }
    }
    // Its lease expired, and the job waits for the next claim.
    assert.strictEqual(decisionOn({ ...queued, attempt: 2 }, complete(2)), over(2))
    assert.strictEqual(decisionOn(canceled, complete(2)), "The job is canceled: stop the work.")
  })

  it("the attempt that ended the job can repeat its report, but not change it", () => {
    assert.strictEqual(decisionOn(ended("completed", 2), complete(2)), "Unchanged")
    assert.strictEqual(decisionOn(ended("failed", 2), fail(2)), "Unchanged")
    assert.strictEqual(decisionOn(ended("failed", 2), fail(2, true)), "Unchanged")
    assert.strictEqual(decisionOn(ended("completed", 2), fail(2)), other)
    assert.strictEqual(decisionOn(ended("failed", 2), complete(2)), other)
    // A worker without an attempt finished it while it was queued.
    assert.strictEqual(decisionOn(ended("completed", null), complete(2)), over(2))
  })

  it("an attempt that failed with a retry can repeat its report, also after later claims", () => {
    const retried = [1, 2]
    for (const job of [
      { ...queued, attempt: 2, retriedAttempts: retried },
      { ...running, attempt: 3, retriedAttempts: retried },
      { ...ended("completed", 3), attempt: 3, retriedAttempts: retried },
    ]) {
      for (const attempt of [1, 2]) {
        assert.strictEqual(decisionOn(job, fail(attempt, true)), "Unchanged")
        assert.strictEqual(decisionOn(job, fail(attempt)), over(attempt))
        assert.strictEqual(decisionOn(job, complete(attempt)), over(attempt))
      }
    }
    assert.strictEqual(decisionOn({ ...running, attempt: 3, retriedAttempts: retried }, fail(33, true)), over(33))
    for (const attempt of [32, 33, 1_000]) {
      const job = { ...running, attempt, max_attempts: 2_000, retriedAttempts: [] }
      const again = { ...queued, attempt, retriedAttempts: withRetried(job) }
      assert.strictEqual(decisionOn(again, fail(attempt, true)), "Unchanged")
      assert.strictEqual(decisionOn(again, fail(attempt - 31, true)), over(attempt - 31))
    }
  })

  it("a job does not return to the queue while a newer one has its unique key", () => {
    const job = { ...running, isReplaced: true }
    const outcomeOf = (report: JobReport) =>
      Result.match(decide(job, report, { now: at(100), nonce: half }), {
        onFailure: ({ error }) => error,
        onSuccess: (decision) => (decision._tag === "Finish" ? decision.outcome.error : decision._tag),
      })
    assert.strictEqual(outcomeOf(fail(2, true)), "replaced: a newer job has its unique key. boom")
    assert.strictEqual(outcomeOf({ _tag: "LeaseExpired" }), "replaced: a newer job has its unique key. lease expired")
    assert.strictEqual(outcomeOf(fail(2)), "boom")
    assert.strictEqual(decisionOn({ ...job, attempt: 3 }, fail(3, true)), "failed")
    assert.strictEqual(decisionOn(job, complete(2)), "completed")
  })

  it("a retry queues the job again after a delay, until its last attempt", () => {
    assert.strictEqual(decisionOn({ ...running, attempt: 1 }, fail(1, true), at(100)), 110)
    assert.strictEqual(decisionOn(running, fail(2, true), at(100)), 120)
    assert.strictEqual(decisionOn(running, fail(undefined, true), at(100)), 120)
    assert.strictEqual(decisionOn({ ...running, attempt: 3 }, fail(3, true)), "failed")
    // A job that was never claimed fails at once. A job that is already queued again stays so.
    assert.strictEqual(decisionOn(queued, fail(undefined, true)), "failed")
    assert.strictEqual(decisionOn({ ...queued, attempt: 1 }, fail(undefined, true)), "Unchanged")
  })

  it("the delay of a retry doubles with each attempt, up to an hour", () => {
    assert.deepStrictEqual(
      [1, 2, 3, 4, 20].map((attempt) => retryDelay(10, attempt)),
      [10, 20, 40, 80, 3600],
    )
    assert.strictEqual(retryDelay(86_400, 1), 3600)
  })

  it("only an unfinished job can be canceled, and canceling again changes nothing", () => {
    assert.deepStrictEqual(
      [queued, running, canceled, ended("completed", 2), ended("failed", null)].map((job) => decisionOn(job, cancel)),
      [
        "Cancel",
        "Cancel",
        "Unchanged",
        "The job has already finished and cannot be canceled.",
        "The job has already finished and cannot be canceled.",
      ],
    )
  })

  it("a running job fails when its lease has expired, and no other job does", () => {
    const last = { ...running, attempt: 3 }
    assert.strictEqual(decisionOn(last, expired, at(60)), "Expired")
    assert.strictEqual(decisionOn({ ...last, isReplaced: true }, expired, at(60)), "Expired")
    // What had replaced it has finished meanwhile.
    const returns = "The job has attempts left: it returns to the queue."
    assert.strictEqual(decisionOn(running, expired, at(60)), returns)
    assert.strictEqual(decisionOn(running, expired, at(59.999)), notRunning)
    for (const job of [queued, canceled]) assert.strictEqual(decisionOn(job, expired, at(60)), notRunning)
    assert.strictEqual(decisionOn(ended("failed", 2), expired), "Unchanged")
    assert.strictEqual(decisionOn(ended("completed", 2), expired), other)
  })

  it("a refused heartbeat says why", () => {
    assert.strictEqual(refusedHeartbeat(canceled, 2).error, "The job is canceled: stop the work.")
    assert.strictEqual(refusedHeartbeat(running, 1).error, over(1))
    for (const attempt of [undefined, 2]) assert.strictEqual(refusedHeartbeat(queued, attempt).error, notRunning)
  })

  it("a policy decides the attempts and waits in place of the job's own, with a fifth of chance", () => {
    const wait = (retryPolicy: RetryPolicy, attempt: number, more: Partial<JobState> = {}, nonce = half) => {
      const job = { ...running, attempt, retryPolicy, ...more }
      const decision = decide(job, fail(undefined, true), { now: at(0), nonce })
      assert.isTrue(Result.isSuccess(decision))
      const { success } = decision as Result.Success<JobDecision, never>
      return success._tag === "Retry" ? DateTime.toEpochMillis(success.runAt) / 1000 : success._tag
    }
    const delays = { attempts: 5, delays: [5, 60] }
    assert.deepStrictEqual(
      [1, 2, 3, 4, 5].map((attempt) => wait(delays, attempt)),
      [5, 60, 60, 60, "Finish"],
    )
    const exponential = { attempts: 20, base_seconds: 10, max_seconds: 50 }
    assert.deepStrictEqual(
      [1, 2, 3, 4, 19].map((attempt) => wait(exponential, attempt)),
      [10, 20, 40, 50, 50],
    )
    // By the job's own delay, and up to an hour.
    assert.deepStrictEqual([wait({ attempts: 20 }, 2), wait({ attempts: 20 }, 19)], [20, 3600])
    // Attempts before somebody retried the job do not count.
    assert.deepStrictEqual(wait(delays, 6, { attemptsBefore: 5 }), 5)
    assert.deepStrictEqual(wait(delays, 10, { attemptsBefore: 5 }), "Finish")
    const shortest = wait(delays, 2, {}, "0".repeat(32))
    const longest = wait(delays, 2, {}, "f".repeat(32))
    assert.deepStrictEqual([shortest, longest], [48, 72])
  })

  it("a job expires only while it is queued and nobody has claimed it", () => {
    const expires = { ...queued, expires_at: at(10) }
    const end: JobReport = { _tag: "Expired" }
    assert.strictEqual(decisionOn(expires, end, at(10)), "failed")
    const claimed = "The job has not expired: a worker has claimed it."
    for (const job of [queued, { ...expires, attempt: 1 }, { ...running, expires_at: at(10) }, ended("failed", 1)]) {
      assert.strictEqual(decisionOn(job, end, at(11)), claimed)
    }
    assert.strictEqual(decisionOn(expires, end, at(9)), claimed)
  })
})
