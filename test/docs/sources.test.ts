import { assert, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"
import { basename, dirname, extname, join, relative, sep } from "node:path"

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

// Seen failing with the twelve that the interfaces have: the number stood in the text and, apart from it, in the code.
it("a number that a description says is the default is the constant that the code uses", () => {
  const written = sources
    .filter((path) => /^src\/(domain|http\/api)\//.test(path))
    .flatMap((path) =>
      readFileSync(root + path, "utf8")
        .split("\n")
        .flatMap((line, n) => (/["`].*Default: \d+[."]/.test(line) ? [`${path}:${n + 1}`] : [])),
    )
  assert.deepStrictEqual(written, [])
})

// Seen failing with the statements of Jobs.deleteWorkflow swapped: who waits looked before there was anything to see.
it("who waits, or remembers, is told after the change and not before it", () => {
  const early = /^( *)yield\* (?:wakeups\.|forgetOwner\()[^\n]*\n\1(?:const .* = )?yield\* repository\./m
  const domain = sources.filter((path) => path.startsWith("src/domain/"))
  assert.deepStrictEqual(
    domain.filter((path) => early.test(readFileSync(root + path, "utf8"))),
    [],
  )
})

// Seen failing with ten lines.
it("a text is cut by `cut`, which leaves no half of a pair and no sign in its place", () => {
  const halved = sources
    .filter((path) => path.startsWith("src/"))
    .filter((path) => /\.slice\(0, [^()]*\)\.toWellFormed\(/.test(readFileSync(root + path, "utf8")))
  assert.deepStrictEqual(halved, [])
})

// 47 names occurred two to four times: there were four files jobs.ts.
it("a name of a file occurs once in src; the pages of the console have their own", () => {
  const seen = new Map<string, string>()
  const twice = sources
    .filter((path) => path.startsWith("src/") && !path.startsWith("src/console/"))
    .flatMap((path) => {
      const name = basename(path, extname(path)).toLowerCase()
      const other = seen.get(name)
      seen.set(name, path)
      return other === undefined || name === "main" ? [] : [`${path} and ${other}`]
    })
  assert.deepStrictEqual(twice, [])
})

const domain = sources.filter((path) => path.startsWith("src/domain/"))
/** The feature of a file of a layer; "" for what is below all features. */
const featureOf = (layer: string, path: string) => {
  const [folder, file] = relative(layer, path).split(sep)
  return file === undefined || folder === ".." ? "" : folder!
}

// Five pairs of the domain used each other both ways, as audit and webhooks, and six of the infrastructure.
it.each(["src/domain", "src/infrastructure"])("features of %s use each other one way only", (layer) => {
  const arrows = new Set(
    sources
      .filter((path) => path.startsWith(`${layer}/`))
      .flatMap((path) =>
        [...readFileSync(root + path, "utf8").matchAll(/ from "(\.[^"]+)"/g)]
          .map(([, to]) => [featureOf(layer, path), featureOf(layer, join(dirname(path), to!))] as const)
          .filter(([from, to]) => from !== "" && to !== "" && from !== to)
          .map((arrow) => arrow.join(" → ")),
      ),
  )
  assert.isAbove(arrows.size, 10)
  const both = [...arrows].filter((arrow) => arrows.has(arrow.split(" → ").toReversed().join(" → ")))
  assert.deepStrictEqual(both, [])
})

// The length of a text is asked by every creation; patterns are loaded when one is used.
it("the domain uses nothing of Node", () => {
  const known = ["src/domain/orgs/StoredBytes.ts", "src/domain/webhooks/jsonSchema.ts"]
  const node = domain.filter((path) => /\b(Buffer\.|process\.[a-z])/.test(readFileSync(root + path, "utf8")))
  assert.deepStrictEqual(node.toSorted(), known)
})
