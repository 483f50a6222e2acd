import { assert } from "@effect/vitest"
import { Effect, Fiber, Logger } from "effect"
import { TestClock } from "effect/testing"
import { Unavailable } from "#src/domain/Errors.ts"
import { type ExhaustedJob, makeExpiry } from "#src/domain/jobs/dueJobs.ts"
import type { RoundRobinBatch } from "#src/domain/roundRobin.ts"
import { it } from "../../support/it.ts"

const job = (orgId: string, n: number): ExhaustedJob => ({ orgId, jobId: `${orgId}${n}` })
const ended = [job("a", 1), job("a", 2), job("a", 3), job("b", 1), job("c", 1)]

/** One batch with these jobs, then empty batches. */
const once = (jobs: ReadonlyArray<ExhaustedJob>) => {
  const asked: Array<RoundRobinBatch> = []
  const expire = (batch: RoundRobinBatch) =>
    Effect.sync(() => ({ queued: 0, exhausted: asked.push(batch) === 1 ? jobs : [], next: null }))
  return { asked, expire }
}

// Seen failing when each was failed alone: many that expire at once came back faster, and claims met nothing else.
it.effect("jobs whose last lease expired are failed, a hundred of each org before others of any", function* () {
  const failed: Array<readonly [orgId: string, jobs: number]> = []
  const { asked, expire } = once([...Array.from({ length: 147 }, (_, n) => job("a", n + 4)), ...ended])
  yield* makeExpiry(expire, (orgId, jobIds) => Effect.sync(() => failed.push([orgId, jobIds.length])))
  assert.deepStrictEqual(failed, [
    ["a", 100],
    ["b", 1],
    ["c", 1],
    ["a", 50],
  ])
  assert.deepInclude(asked[0], { limit: 1_000, after: null })
})

// Seen failing when a job that could not be failed ended the batch, so that later jobs never failed.
it.effect("a job that cannot be failed does not delay others, and is logged", function* () {
  const log: Array<string> = []
  const failed: Array<string> = []
  const faults: Record<string, Effect.Effect<never, Unavailable>> = {
    a1: Effect.die(new Error("no such column")),
    a2: Effect.fail(new Unavailable({ error: "too slow" })),
  }
  yield* makeExpiry(
    once(ended).expire,
    (_, jobIds) =>
      jobIds.map((id) => faults[id]).find((fault) => fault !== undefined) ??
      Effect.sync(() => void failed.push(...jobIds)),
  ).pipe(Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))])))
  assert.deepStrictEqual(failed.toSorted(), ["a3", "b1", "c1"])
  assert.deepStrictEqual([log.length, log.filter((line) => /no such column|too slow/.test(line)).length], [2, 2])
})

it.effect("a batch fails jobs for half a second, and leaves the rest to the next batch", function* () {
  let failed = 0
  const many = Array.from({ length: 10_000 }, (_, n) => job("a", n))
  const sweep = yield* Effect.forkChild(
    makeExpiry(once(many).expire, (_, jobIds) =>
      Effect.delay(
        Effect.sync(() => (failed += jobIds.length)),
        "100 millis",
      ),
    ),
  )
  yield* TestClock.adjust("10 seconds")
  yield* Fiber.join(sweep)
  // Four hundred at a time, five times.
  assert.strictEqual(failed, 2_000)
})

it.effect("an org whose jobs wait for a lock delays no job of another org", function* () {
  const waiting: Array<string> = []
  const failed: Array<string> = []
  let batches = 0
  const expire = () => Effect.sync(() => ({ queued: 0, exhausted: [...ended, job("b", ++batches)], next: null }))
  const pass = makeExpiry(expire, (orgId, jobIds) =>
    orgId === "a"
      ? Effect.andThen(
          Effect.sync(() => waiting.push(...jobIds)),
          Effect.never,
        )
      : Effect.sync(() => void failed.push(...jobIds)),
  )
  yield* Effect.forkChild(Effect.forever(Effect.delay(pass, "1 second")))
  yield* TestClock.adjust("10 seconds")
  assert.deepStrictEqual(waiting, ["a1", "a2", "a3"])
  assert.isAbove(batches, 5)
  assert.includeMembers(failed, ["b1", "b5", "c1"])
})
