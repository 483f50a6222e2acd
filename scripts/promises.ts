import { globSync, readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const repository = fileURLToPath(new URL("../", import.meta.url))
export const pagePath = `${repository}docs/promises-tests.md`

/** A comment of a test that says which promise the test shows, and which part of it. */
interface Shown {
  readonly promise: string
  /** What exactly is tested; empty if the name of the test says it. */
  readonly detail: string
  readonly file: string
  /** `undefined`: the whole file. */
  readonly test: string | undefined
}

/**
 * `Promise (name): detail` in a comment of its own. The two lines below it are those of the test; an empty line means
 * the file.
 */
const comment = /\/\*\*[\s*]+Promise \(([^)]+)\)(?::((?:(?!\*\/)[^])*?))?\s*\*\/(?=\n(.*\n.*))/g

/** The first text of some code that can be the name of a test. */
const nameIn = (code: string) =>
  [...code.replace(/\.each\(\[[^\]]*\]/, "").matchAll(/"([^"\n]*)"/g)]
    .map(([, text]) => text!)
    .find((text) => text.includes(" "))

/** What the text of one file shows. */
export const shownIn = (file: string, text: string): ReadonlyArray<Shown> =>
  [...text.matchAll(comment)].map(([, promise, detail = "", code]) => ({
    promise: promise!,
    detail: detail.replaceAll(/\n\s*\* ?/g, " ").trim(),
    file,
    test: code!.startsWith("\n") ? undefined : nameIn(code!),
  }))

/** The names of the promises of docs/promises.md. */
export const promisesOf = (page: string) => [...page.matchAll(/^- \*\*\[(.*?)\]/gm)].map(([, name]) => name!)

const cell = (text: string) => text.replaceAll("|", "\\|")

const sectionOf = (name: string, shown: ReadonlyArray<Shown>) => {
  const own = shown.filter(({ promise }) => promise === name)
  if (own.length === 0) throw new Error(`No test shows the promise "${name}": write /** Promise (${name}) */ above one`)
  const rows = own.map(({ detail, file, test }) => {
    const what = detail || test || "further cases"
    return `| ${cell(what)} | \`${file}\`${test === undefined || what === test ? "" : ` › ${cell(test)}`} |`
  })
  return `## ${name}\n\n| what is tested | test |\n| --- | --- |\n${rows.join("\n")}\n`
}

/** The page of the tests. Throws for a promise without a test, and for a test of an unknown promise. */
export const pageOf = (promises: ReadonlyArray<string>, shown: ReadonlyArray<Shown>) => {
  const unknown = shown.find(({ promise }) => !promises.includes(promise))
  if (unknown !== undefined) throw new Error(`${unknown.file}: docs/promises.md has no promise "${unknown.promise}"`)
  return `# Tests of the promises

The tests behind each of the [promises](promises.md), with what exactly they show. A test says so in a comment above it,
\`Promise (name): what is tested\`; \`npm run promises\` makes this page from these comments.

| files | run one with |
| --- | --- |
| \`test/faults\` | \`npx vitest run --project faults FILE\` |
| \`test/console\` | \`npx vitest run --project console FILE\` |
| \`test/sim\` | \`npx vitest run --project sim FILE\` |
| \`test/generated\` | \`npm run test:clients\` |
| \`test/package\` | \`npm run test:package\` |
| \`test/schemathesis\` | \`npm run test:schemathesis\` |
| all others | \`npx vitest run --project main FILE\`; shared cases run with the tests beside them |

${promises.map((name) => sectionOf(name, shown)).join("\n")}`
}

export const page = () =>
  pageOf(
    promisesOf(readFileSync(`${repository}docs/promises.md`, "utf8")),
    globSync("test/**/*.ts", { cwd: repository, exclude: ["**/node_modules/**"] })
      .toSorted()
      .flatMap((file) => shownIn(file, readFileSync(repository + file, "utf8"))),
  )

if (import.meta.main) writeFileSync(pagePath, page())
