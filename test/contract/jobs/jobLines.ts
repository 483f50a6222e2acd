import { assert } from "@effect/vitest"
import { type DateTime, Effect } from "effect"
import { type JobLine, maxLinesBytes } from "#src/domain/jobs/Job.ts"
import { type FinishedStep, JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { findWithUsage, refusal, updateOrg } from "../orgs/orgLimits.ts"
import { failureOf, insertOrg, newEntry } from "../support.ts"
import type { It } from "../webhooks/webhookSupport.ts"
import {
  completed,
  epoch,
  failed,
  findJob,
  finish,
  heartbeat,
  insertJob,
  noSuchJob,
  plus,
} from "../webhooks/webhookSupport.ts"

/**
 * Promise (Retries and batches of jobs): What a worker logs, and the results of finished steps, stay with their job
 * through attempts, retries and its end; a worker whose attempt is not running adds none.
 */

const claim = (orgId: string, now: DateTime.Utc) =>
  JobRepository.use((jobs) => jobs.claim(orgId, { workflows: undefined, limit: 10, now, leaseUntil: plus(now, 60) }))
const line = (at: DateTime.Utc, text: string, level: JobLine["level"] = "info"): JobLine => ({ at, level, text })
const log = (orgId: string, jobId: string, lines: ReadonlyArray<JobLine>, now: DateTime.Utc, attempt = 1) =>
  JobRepository.use((jobs) =>
    jobs.extendLease(orgId, jobId, { leaseUntil: null, now, attempt, progress: undefined, note: undefined, lines }),
  )
const linesOf = (orgId: string, jobId: string) => JobRepository.use((jobs) => jobs.lines(orgId, jobId))
const step = (orgId: string, jobId: string, fields: Partial<FinishedStep> & { readonly now: DateTime.Utc }) =>
  JobRepository.use((jobs) => jobs.finishStep(orgId, jobId, { attempt: 1, name: "one", result: null, ...fields }))
const bytesOf = (orgId: string) => Effect.map(findWithUsage(orgId), ({ used }) => used.storedBytes)
const over = /Attempt 1 of the job is not running/

/** An org with a claimed job. */
const insertClaimed = Effect.gen(function* () {
  const { orgId } = yield* insertOrg()
  const now = epoch()
  const jobId = yield* insertJob(orgId, { retryDelaySeconds: 1 })
  yield* claim(orgId, now)
  return { orgId, jobId, now }
})

/** Ends the running attempt, and claims the job again. */
const tryAgain = Effect.fnUntraced(function* (orgId: string, jobId: string, now: DateTime.Utc) {
  yield* finish(orgId, jobId, failed(), now, { attempt: 1, retry: true })
  yield* JobRepository.use((jobs) => jobs.queueDelayed({ now: plus(now, 2), limit: 1_000, after: null }))
  yield* claim(orgId, plus(now, 2))
})

/** The contract of what workers log, and of finished steps, in every JobRepository. */
export const jobLines = (it: It) => {
  it.effect("lines: a job keeps what its attempts have logged, also with a heartbeat and after its end", function* () {
    const { jobId, now, orgId } = yield* insertClaimed
    assert.deepStrictEqual(yield* linesOf(orgId, jobId), [])
    const [one, two, three] = [
      line(now, 'a "b"\n\\ ü 😀 \u0000'),
      line(now, "", "debug"),
      line(plus(now, 1), "c", "error"),
    ]
    yield* log(orgId, jobId, [one, two], plus(now, 1))
    assert.deepInclude(yield* findJob(orgId, jobId), { lease_expires_at: plus(now, 60) })
    yield* JobRepository.use((jobs) =>
      jobs.extendLease(orgId, jobId, { ...heartbeat(plus(now, 90), plus(now, 2), 1), note: "n", lines: [three] }),
    )
    assert.deepInclude(yield* findJob(orgId, jobId), { lease_expires_at: plus(now, 90), note: "n" })
    assert.deepStrictEqual(yield* linesOf(orgId, jobId), [one, two, three])
    yield* tryAgain(orgId, jobId, plus(now, 3))
    yield* log(orgId, jobId, [three], plus(now, 6), 2)
    yield* finish(orgId, jobId, failed(), plus(now, 7), { attempt: 2 })
    assert.deepStrictEqual(yield* linesOf(orgId, jobId), [one, two, three, three])
    yield* JobRepository.use((jobs) => jobs.retry(orgId, jobId, undefined, plus(now, 8), newEntry()))
    assert.strictEqual((yield* linesOf(orgId, jobId)).length, 4)
  })

  it.effect("lines: the newest 64 KiB of a job are kept, in whole lines, and count as stored bytes", function* () {
    const { jobId, now, orgId } = yield* insertClaimed
    const before = yield* bytesOf(orgId)
    const sizeOf = (lines: ReadonlyArray<JobLine>) =>
      lines
        .map(({ at, level, text }) => Buffer.byteLength(JSON.stringify({ at, level, text })) + 1)
        .reduce((a, b) => a + b, 0)
    for (let n = 0; n < 40; n++) yield* log(orgId, jobId, [line(now, `${n} `.padEnd(1_500, "ü"))], now)
    const kept = yield* linesOf(orgId, jobId)
    const numbers = kept.map(({ text }) => Number(text.split(" ")[0]))
    assert.deepStrictEqual(
      numbers,
      numbers.map((_, n) => 40 - numbers.length + n),
    )
    assert.isAtMost(sizeOf(kept) - 1, maxLinesBytes)
    assert.isAbove(sizeOf(kept), maxLinesBytes - 2 * 3_100)
    assert.strictEqual((yield* bytesOf(orgId)) - before, sizeOf(kept) - 1)
    const many = Array.from({ length: 100 }, (_, n) => line(now, `${n} `.padEnd(2_000, "x")))
    yield* log(orgId, jobId, many, now)
    const newest = yield* linesOf(orgId, jobId)
    assert.strictEqual(newest.at(-1)!.text, many[99]!.text)
    assert.isAtMost(sizeOf(newest) - 1, maxLinesBytes)
  })

  it.effect("steps: the result of a finished step stays with the job, and its first result stays", function* () {
    const { jobId, now, orgId } = yield* insertClaimed
    const before = yield* bytesOf(orgId)
    const result = { odd: ['"name":"two"', "\n", "\u0000", "\ud800"], n: 1e-7 }
    yield* step(orgId, jobId, { name: 'one "1"', result, now: plus(now, 1) })
    yield* step(orgId, jobId, { name: "two", now: plus(now, 2) })
    yield* step(orgId, jobId, { name: 'one "1"', result: "other", now: plus(now, 3) })
    const shown = Effect.map(findJob(orgId, jobId), ({ steps }) => JSON.parse(JSON.stringify(steps)) as unknown)
    const expected = [
      { name: 'one "1"', finished_at: plus(now, 1), result },
      { name: "two", finished_at: plus(now, 2), result: null },
    ]
    assert.deepStrictEqual(yield* shown, JSON.parse(JSON.stringify(expected)))
    const size = Buffer.byteLength(expected.map((one) => JSON.stringify(one)).join("\n"))
    assert.strictEqual((yield* bytesOf(orgId)) - before, size)
    yield* tryAgain(orgId, jobId, plus(now, 4))
    yield* finish(orgId, jobId, completed(), plus(now, 8), { attempt: 2 })
    assert.deepStrictEqual(yield* shown, JSON.parse(JSON.stringify(expected)))
  })

  it.effect("steps: more than 256 KiB of a job, and more than its org may store, are refused", function* () {
    const { jobId, now, orgId } = yield* insertClaimed
    yield* step(orgId, jobId, { name: "one", result: "x".repeat(200_000), now })
    assert.match(yield* failureOf(step(orgId, jobId, { name: "two", result: "x".repeat(63_000), now })), /256 KiB/)
    yield* step(orgId, jobId, { name: "two", result: "x".repeat(20_000), now })
    assert.strictEqual((yield* findJob(orgId, jobId)).steps.length, 2)
    yield* updateOrg(orgId, { limits: { storedBytes: 1_000 } })
    assert.match(yield* refusal(step(orgId, jobId, { name: "three", result: "x".repeat(2_000), now })), /stored bytes/)
    const long = Array.from({ length: 2 }, () => line(now, "x".repeat(1_000)))
    assert.match(yield* refusal(log(orgId, jobId, long, now)), /stored bytes/)
    // A job can go on with little.
    yield* step(orgId, jobId, { name: "three", now })
    yield* log(orgId, jobId, [line(now, "short")], now)
  })

  it.effect(
    "fence: lines and steps of an attempt that is not running are refused, and of no job of the org",
    function* () {
      const { jobId, now, orgId } = yield* insertClaimed
      const { orgId: foreign } = yield* insertOrg()
      yield* tryAgain(orgId, jobId, now)
      for (const late of [log(orgId, jobId, [line(now, "late")], now), step(orgId, jobId, { now })]) {
        assert.match(yield* failureOf(late), over)
      }
      yield* finish(orgId, jobId, completed(), now, { attempt: 2 })
      for (const late of [log(orgId, jobId, [line(now, "late")], now, 2), step(orgId, jobId, { now, attempt: 2 })]) {
        assert.match(yield* failureOf(late), /The job is not running/)
      }
      for (const other of [
        log(foreign, jobId, [line(now, "late")], now, 2),
        step(foreign, jobId, { now }),
        linesOf(foreign, jobId),
      ] as ReadonlyArray<Effect.Effect<unknown, unknown, JobRepository>>) {
        assert.strictEqual(yield* failureOf(other), noSuchJob)
      }
      assert.deepStrictEqual(yield* linesOf(orgId, jobId), [])
      assert.deepStrictEqual((yield* findJob(orgId, jobId)).steps, [])
    },
  )
}
