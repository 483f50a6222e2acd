import { assert, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"

const root = new URL("../../", import.meta.url).pathname
const sources = globSync(["{src,test,bench,scripts}/**/*.{ts,tsx}", "packages/*/src/**/*.ts"], {
  cwd: root,
  exclude: ["**/node_modules/**"],
})

// Seen failing with 688 lines, the longest of 180 columns.
it("lines of comments end within 120 columns, as the formatter's lines of code do", () => {
  const long = sources.flatMap((path) =>
    readFileSync(root + path, "utf8")
      .split("\n")
      .flatMap((line, n) => (line.length > 120 && /^\s*(\*|\/\/|\/\*\*) /.test(line) ? [`${path}:${n + 1}`] : []))
      .filter((place) => !place.startsWith("test/fixtures/")),
  )
  assert.isAbove(sources.length, 500)
  assert.deepStrictEqual(long, [])
})

// Seen failing with 57 lines, one of which failed now and then: the page's title came after what the test waited for.
it("what a page of the console shows is waited for, not read once", () => {
  const once = /expect\(await .*\.(count|get\w+|inner\w+|input\w+|is\w+|all\w+|textContent|title)\(/
  const reads = sources
    .filter((path) => path.startsWith("test/console/"))
    .flatMap((path) =>
      readFileSync(root + path, "utf8")
        .split("\n")
        .flatMap((line, n) => (once.test(line) ? [`${path}:${n + 1}: use expect.poll`] : [])),
    )
  assert.deepStrictEqual(reads, [])
})

// Seen failing with ten lines.
it("a text is cut by `cut`, which leaves no half of a pair and no sign in its place", () => {
  const halved = sources
    .filter((path) => path.startsWith("src/"))
    .filter((path) => /\.slice\(0, [^()]*\)\.toWellFormed\(/.test(readFileSync(root + path, "utf8")))
  assert.deepStrictEqual(halved, [])
})
