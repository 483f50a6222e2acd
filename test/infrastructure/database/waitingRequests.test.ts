import { assert, it } from "@effect/vitest"
import { enter, leave, type Waiting } from "#src/infrastructure/database/orUnavailable.ts"

it("the last third of the waiting requests is for orgs with less than a third; one that ends frees its place", () => {
  const waiting: Waiting = { count: 0, byOrg: new Map() }
  const enterAll = (orgId: string) => {
    let entered = 0
    while (enter(waiting, orgId, 9)) entered++
    return entered
  }
  assert.deepStrictEqual([enterAll("a"), enterAll("b"), enterAll("c")], [6, 3, 0])
  for (let n = 0; n < 4; n++) leave(waiting, "a")
  // Two requests of a and three of b wait: a may reach its third, and the others get the rest of theirs.
  assert.deepStrictEqual([enterAll("b"), enterAll("a"), enterAll("c")], [1, 1, 2])
  for (const [orgId, count] of [...waiting.byOrg]) for (let n = 0; n < count; n++) leave(waiting, orgId)
  assert.deepStrictEqual([waiting.count, waiting.byOrg.size], [0, 0])
})
