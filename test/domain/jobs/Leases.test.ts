import { assert } from "@effect/vitest"
import { Effect, Fiber, Logger } from "effect"
import { TestClock } from "effect/testing"
import { Conflict, NotFound, Unavailable } from "#src/domain/Errors.ts"
import { type ExhaustedJob, makeExpiry } from "#src/domain/jobs/Leases.ts"
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

it.effect("jobs whose last lease expired are failed, one of each org before a second of any", function* () {
  const failed: Array<string> = []
  const { asked, expire } = once(ended)
  yield* makeExpiry(expire, ({ jobId }) => Effect.sync(() => void failed.push(jobId)))
  assert.deepStrictEqual(failed, ["a1", "b1", "c1", "a2", "a3"])
  assert.deepInclude(asked[0], { limit: 1_000, after: null })
})

// Seen failing when a job that could not be failed ended the batch, so that later jobs never failed.
it.effect("a job that cannot be failed does not delay others, and is logged", function* () {
  const log: Array<string> = []
  const failed: Array<string> = []
  const faults: Record<string, Effect.Effect<never, Conflict | NotFound | Unavailable>> = {
    a1: Effect.die(new Error("no such column")),
    a2: Effect.fail(new Unavailable({ error: "too slow" })),
    b1: Effect.fail(new Conflict({ error: "finished" })),
    c1: Effect.fail(new NotFound({ error: "gone" })),
  }
  yield* makeExpiry(
    once(ended).expire,
    ({ jobId }) => faults[jobId] ?? Effect.sync(() => void failed.push(jobId)),
  ).pipe(Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))])))
  assert.deepStrictEqual(failed, ["a3"])
  assert.deepStrictEqual([log.length, log.filter((line) => /no such column|too slow/.test(line)).length], [2, 2])
})

it.effect("a batch fails jobs for half a second, and leaves the rest to the next batch", function* () {
  let failed = 0
  const many = Array.from({ length: 100 }, (_, n) => job("a", n))
  const sweep = yield* Effect.forkChild(
    makeExpiry(once(many).expire, () =>
      Effect.delay(
        Effect.sync(() => void failed++),
        "100 millis",
      ),
    ),
  )
  yield* TestClock.adjust("10 seconds")
  yield* Fiber.join(sweep)
  // Four at a time, five times.
  assert.strictEqual(failed, 20)
})

it.effect("an org whose jobs wait for a lock delays no job of another org", function* () {
  const waiting: Array<string> = []
  const failed: Array<string> = []
  let batches = 0
  const expire = () => Effect.sync(() => ({ queued: 0, exhausted: [...ended, job("b", ++batches)], next: null }))
  const pass = makeExpiry(expire, ({ jobId, orgId }) =>
    orgId === "a"
      ? Effect.andThen(
          Effect.sync(() => waiting.push(jobId)),
          Effect.never,
        )
      : Effect.sync(() => void failed.push(jobId)),
  )
  yield* Effect.forkChild(Effect.forever(Effect.delay(pass, "1 second")))
  yield* TestClock.adjust("10 seconds")
  assert.deepStrictEqual(waiting, ["a1", "a2", "a3"])
  assert.isAbove(batches, 5)
  assert.includeMembers(failed, ["b1", "b5", "c1"])
})
