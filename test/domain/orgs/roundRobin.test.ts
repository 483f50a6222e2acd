import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Unavailable } from "#src/domain/Errors.ts"
import { alternateOrgs, roundRobin, type RoundRobinBatch, type RoundRobinResult } from "#src/domain/roundRobin.ts"
import { it } from "../../support/it.ts"

/** A sweep with these results of its batches, one after the other, and the arguments of each batch. */
const sweepOf = (...batches: ReadonlyArray<RoundRobinResult | "down">) => {
  const asked: Array<RoundRobinBatch> = []
  const left = [...batches]
  const run = roundRobin(8, (batch) =>
    Effect.suspend(() => {
      asked.push(batch)
      const swept = left.shift() ?? { moved: 0, next: null }
      return swept === "down" ? Effect.fail(new Unavailable({ error: "down" })) : Effect.succeed(swept)
    }),
  )
  return { run, after: () => asked.map(({ after }) => after), limits: () => asked.map(({ limit }) => limit) }
}

it.effect("a batch that is not full ends the sweep", function* () {
  const sweep = sweepOf({ moved: 7, next: null })
  yield* sweep.run
  assert.deepStrictEqual(sweep.after(), [null])
})

// Seen failing when full batches took the oldest rows: another org came after all rows of the first.
it.effect("after each full batch every org has its turn", function* () {
  const full = { moved: 8, next: "" }
  const sweep = sweepOf(full, { moved: 8, next: "b" }, { moved: 2, next: null }, full, { moved: 1, next: null })
  yield* sweep.run
  assert.deepStrictEqual(sweep.after(), [null, "", "b", null, "", null])
})

it.effect("a batch that moves nothing is not repeated at once", function* () {
  const sweep = sweepOf({ moved: 0, next: "" }, { moved: 0, next: null })
  yield* sweep.run
  assert.deepStrictEqual(sweep.after(), [null, ""])
})

it.effect("a failed batch is halved the next time, and starts with the org whose turn it was", function* () {
  const full = { moved: 1, next: "" }
  const sweep = sweepOf(full, { moved: 1, next: "b" }, "down", "down", full, { moved: 1, next: null })
  yield* Effect.flip(sweep.run)
  yield* Effect.flip(sweep.run)
  yield* sweep.run
  assert.deepStrictEqual(sweep.after(), [null, "", "b", null, null, "b", null])
  assert.deepStrictEqual(sweep.limits(), [8, 8, 8, 4, 2, 4, 8])
})

it("alternateOrgs returns the first item of each org, then the second of each", () => {
  const turns = alternateOrgs(["a1", "a2", "a3", "b1", "c1", "b2"], ([org]) => org!)
  assert.deepStrictEqual(turns, ["a1", "b1", "c1", "a2", "b2", "a3"])
})
