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
