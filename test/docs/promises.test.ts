import { expect } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { page, pageOf, pagePath, promisesOf, shownIn } from "../../scripts/promises.ts"
import { it } from "../support/it.ts"

it("docs/promises-tests.md has the tests of every promise; npm run promises writes it", () => {
  expect(readFileSync(pagePath, "utf8")).toBe(page())
})

const comment = (name: string, detail = "") => `/** Promise (${name})${detail} */`

it("a promise without a test, and a test of an unknown promise, are faults", () => {
  const promises = promisesOf("- **[Order](x#order).** In order.\n- **[Pace](x#pace).** Not too fast.\n")
  const [order, pace] = shownIn(
    "test/a.test.ts",
    `${comment("Order", ": One\n * by | one.")}\n\n${comment("Pace")}\n  it.live(\n    "is never exceeded", () => {})`,
  )
  const text = pageOf(promises, [order!, pace!])
  expect(text).toContain("| One by \\| one. | `test/a.test.ts` |")
  expect(text).toContain("| is never exceeded | `test/a.test.ts` |")
  expect(() => pageOf(promises, [order!])).toThrow('No test shows the promise "Pace"')
  expect(() => pageOf(["Order"], [order!, pace!])).toThrow('test/a.test.ts: docs/promises.md has no promise "Pace"')
})
