import { assert, describe, it } from "@effect/vitest"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import { type JobLook, makeJobPositions, maxLookedJobs } from "#src/infrastructure/jobs/jobPositions.ts"

/** Promise (Dumps and old snapshots) */

const start = Date.parse("2026-11-25T12:00:00.000Z")
const id = (seconds: number) => `${idAt(start + 1000 * seconds)}0000000000000000`
const since = (seconds: number) => idAt(start + 1000 * seconds - 500)
const job = (seconds: number, priority = 0) => ({ orgId: "org", workflow: "w", priority, id: id(seconds) })

/** Positions of a queue that a look found slow. */
const positionsAfter = (heads: JobLook["heads"]) => {
  const positions = makeJobPositions()
  assert.deepStrictEqual(positions.claimed("org", ["w"], [], 100, 0), ["w"])
  positions.looked("org", "w", { at: start, heads, tookMillis: 100 }, 0)
  return positions
}
const headsOf = (positions: ReturnType<typeof makeJobPositions>) =>
  positions.reads("org", ["w"])!.heads.map(({ priority, since }) => [priority, since])

describe("where claims of jobs begin to read", () => {
  it("is the beginning of a queue whose claims or looks are fast", () => {
    const positions = makeJobPositions()
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 1, 0), [])
    assert.isUndefined(positions.reads("org", ["w"]))
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 100, 0), ["w"])
    positions.looked("org", "w", { at: start, heads: [], tookMillis: 0.1 }, 10)
    assert.isUndefined(positions.reads("org", ["w"]))
    assert.isFalse(positions.isUsed())
    // A slow claim causes one look a second at most.
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 100, 900), [])
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 100, 1_010), ["w"])
  })

  it("is a little before the first job that the last claim found, for each priority", () => {
    const positions = positionsAfter([[5, [id(-20), id(-10)]]])
    assert.deepStrictEqual(headsOf(positions), [
      [5, since(-20)],
      [0, since(0)],
    ])
    positions.claimed("org", ["w"], [job(3), job(2), job(-10, 5)], 1, 0)
    assert.deepStrictEqual(headsOf(positions), [
      [5, since(-10)],
      [0, since(2)],
    ])
  })

  it("moves back to the first job when a look finds more before it than it remembers", () => {
    const positions = positionsAfter([[0, [id(0)]]])
    const early = Array.from({ length: maxLookedJobs }, (_, n) => id(-200 + n))
    positions.looked("org", "w", { at: start, heads: [[0, early]], tookMillis: 100 }, 2_000)
    assert.deepStrictEqual(headsOf(positions), [[0, since(-200)]])
    assert.deepStrictEqual(positions.reads("org", ["w"])!.left, [])
  })

  it("does not move back for a job that is queued again, which is claimed by its id", () => {
    const positions = positionsAfter([[0, [id(0)]]])
    positions.queued([job(-60), job(10), { ...job(-60), orgId: "another" }, job(20, -7)])
    assert.deepStrictEqual(positions.reads("org", ["w"])!.left, [id(-60)])
    assert.deepStrictEqual(headsOf(positions), [
      [0, since(0)],
      [-7, since(20)],
    ])
    positions.claimed("org", ["w"], [job(-60)], 1, 0)
    assert.deepStrictEqual(positions.reads("org", ["w"]), {
      heads: [
        { workflow: "w", priority: 0, since: since(0) },
        { workflow: "w", priority: -7, since: since(20) },
      ],
      left: [],
    })
  })

  it("a look finds the jobs before it, and forgets those that have gone", () => {
    const positions = positionsAfter([[0, [id(0)]]])
    positions.queued([job(-60)])
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 1, 2_000), ["w"])
    positions.queued([job(-40)])
    positions.looked("org", "w", { at: start, heads: [[0, [id(-30), id(5)]]], tookMillis: 100 }, 2_000)
    assert.deepStrictEqual(positions.reads("org", ["w"])!.left, [id(-40), id(-30)])
    // Looks use a twentieth of the time.
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 1, 3_900), [])
    assert.deepStrictEqual(positions.claimed("org", ["w"], [], 1, 4_000), ["w"])
  })

  it("a claim of several workflows has positions when all of them have", () => {
    const positions = positionsAfter([[0, [id(0)]]])
    assert.isUndefined(positions.reads("org", ["v", "w"]))
    positions.claimed("org", ["v"], [], 100, 0)
    positions.looked("org", "v", { at: start, heads: [], tookMillis: 100 }, 0)
    assert.deepStrictEqual(
      positions.reads("org", ["v", "w"])!.heads.map(({ workflow }) => workflow),
      ["v", "w"],
    )
  })
})
