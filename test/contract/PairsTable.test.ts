import { expect, test } from "vitest"
import { globSync, readFileSync } from "node:fs"
import { leftOut, loop, loops, passes, reads } from "../faults/pairs/table.ts"
import { all } from "../http/sessions/world.ts"

/** Promise (Simulation) */

// The pairs themselves are in test/faults/pairs.test.ts, which shows that each of their operations writes.

test("every loop of the background work has its passes in the table of pairs, or a reason", () => {
  const source = new URL("../../src/", import.meta.url)
  const found = globSync("{boot,http,domain,infrastructure}/**/*.ts", { cwd: source }).flatMap((file) => {
    const count = readFileSync(new URL(file, source), "utf8").match(loop)?.length ?? 0
    return count === 0 ? [] : [[file, count] as const]
  })
  expect(Object.fromEntries(found)).toEqual(
    Object.fromEntries(Object.entries(loops).map(([file, [count]]) => [file, count])),
  )
})

test("the table of pairs has every pass that a loop names, and no other", () => {
  const named = Object.values(loops).flatMap(([, passes]) => (typeof passes === "string" ? [] : passes))
  expect(named.toSorted()).toEqual(Object.keys(passes).toSorted())
})

test("what the table of pairs leaves out is in the definition of the API", () => {
  const ids = new Set(all.map(({ id }) => id))
  expect([...reads, ...Object.keys(leftOut)].filter((id) => !ids.has(id))).toEqual([])
})
