import { readdirSync, readFileSync } from "node:fs"
import type { Page } from "#src/domain/docs/DocsPassages.ts"

const folder = new URL("../fixtures/docs/", import.meta.url)

/** The documentation set of the tests: a dozen pages about Gatehouse. */
export const docsPages: Readonly<Record<string, string>> = Object.fromEntries(
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".md"))
    .sort()
    .map((path) => [path.replaceAll("\\", "/").replace(/\.md$/, ""), readFileSync(new URL(path, folder), "utf8")]),
)

export const docs: ReadonlyArray<Page> = Object.entries(docsPages).map(([slug, markdown]) => ({ slug, markdown }))

/** Pages of generated prose: each has a word of its own, `subject<n>`, and about 450 others. */
export const manyPages = (count: number): ReadonlyArray<Page> =>
  Array.from({ length: count }, (_, n) => ({
    slug: `pages/page-${n}`,
    markdown: [
      `# Page ${n}`,
      ...Array.from({ length: 6 }, (_, section) => {
        const words = Array.from({ length: 75 }, (_, at) => `word${(n * 31 + section * 17 + at * 7) % 5_000}`)
        return `## Section ${section}\n\n${words.join(" ")} subject${n}.`
      }),
    ].join("\n\n"),
  }))
