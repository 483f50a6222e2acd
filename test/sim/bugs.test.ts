import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { bugs } from "./bugs.ts"
import { page } from "./page.ts"
import { makePlan } from "./plan.ts"
import { simulate } from "./simulation.ts"

/** Promise (Simulation): Planted bugs are found. */

// The code changes, and a bug that cannot be planted proves nothing.
test.each(bugs)("the place of the planted bug is in the source: $name", ({ edits }) => {
  for (const [file, from, to] of edits) {
    const source = readFileSync(new URL(`../../src/${file}`, import.meta.url), "utf8")
    expect(source.split(from).length - 1, file).toBe(1)
    expect(to).not.toBe(from)
  }
})

test("the page of a run has all its entries, and no text of the run can end its script", async () => {
  const outcome = await simulate(makePlan(3, [0.5, 1]))
  const log = [...outcome.log, { at: 1, who: "world", what: "</script><b>" }]
  const html = page({ ...outcome, log })
  const [, data] = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)!
  expect((JSON.parse(data!) as { readonly entries: ReadonlyArray<unknown> }).entries).toHaveLength(log.length)
  expect(html).not.toContain("</script><b>")
})
