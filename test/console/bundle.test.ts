import { expect } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { gzipSync } from "node:zlib"
import { inject, it } from "vitest"
import { consoles, inTab, withConsole } from "./support.ts"

/** Promise (Portal): The element `<gatehouse-portal>` is at most 3 kB, compressed. */

/**
 * Promise (Console): All files of the console, with the portal in a frame, are less than 130 kB compressed, and the
 * first load has one page.
 */

/** Bytes that the console may have, compressed. */
const maxBytes = 130_000

const sizes = () =>
  readdirSync(inject("consoleFolder"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ name, parentPath }) => ({ name, size: gzipSync(readFileSync(join(parentPath, name))).length }))

it("all files of the console together are at most 130 kB, compressed", () => {
  const all = sizes().reduce((sum, { size }) => sum + size, 0)
  expect(all).toBeGreaterThan(10_000)
  expect(all).toBeLessThan(maxBytes)
})

it("the element for pages of others is one file of at most 3 kB, compressed", () => {
  const code = readFileSync(join(inject("consoleFolder"), "element.js"), "utf8")
  expect(code).toContain("gatehouse-portal")
  expect(code).not.toMatch(/\bimport\b/)
  expect(gzipSync(code).length).toBeLessThan(3_000)
})

withConsole("the first load", consoles["the embedded database"], (it) => {
  it.effect("has the frame and one page, not all pages", () =>
    inTab("/orgs", async (page) => {
      await page.getByRole("heading", { name: "Orgs" }).waitFor()
      const loaded = (await page.evaluate(
        "performance.getEntriesByType('resource').map(({ name }) => name.split('/').at(-1))",
      )) as ReadonlyArray<string>
      expect(loaded.some((name) => name.startsWith("OrgsPage"))).toBe(true)
      expect(loaded.filter((name) => /\wPage-/.test(name))).toHaveLength(1)
    }),
  )
})
