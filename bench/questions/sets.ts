import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Page } from "../../src/domain/docs/DocsPassages.ts"
import { aiSdk } from "./aiSdk.ts"
import { gatehouse } from "./gatehouse.ts"
import { languages } from "./languages.ts"
import { playwright } from "./playwright.ts"
import type { Question } from "./Question.ts"
import { undici } from "./undici.ts"

/** A documentation set, and questions about it. */
export interface QuestionSet {
  readonly name: string
  readonly pages: ReadonlyArray<Page>
  readonly questions: ReadonlyArray<Question>
}

const root = fileURLToPath(new URL("../../", import.meta.url))

/** The markdown files in folders of `base`, with their paths as slugs. */
const pagesIn = (
  base: string,
  accept: (path: string) => boolean,
  slugOf = (path: string) => path,
): ReadonlyArray<Page> =>
  readdirSync(root + base, { recursive: true, encoding: "utf8" })
    .map((path) => path.replaceAll("\\", "/"))
    .filter((path) => /\.mdx?$/.test(path) && accept(path))
    .sort()
    .map((path) => ({
      slug: slugOf(path.replace(/\.mdx?$/, "").replace(/\/index$/, "")),
      markdown: readFileSync(`${root}${base}${path}`, "utf8"),
    }))

/** Three sets that ship with packages, Gatehouse's own documentation, and a small one in six languages. */
export const questionSets = (): ReadonlyArray<QuestionSet> => [
  {
    name: "Gatehouse",
    pages: [
      { slug: "README", markdown: readFileSync(`${root}README.md`, "utf8") },
      ...pagesIn(
        "docs/",
        () => true,
        (path) => `docs/${path}`,
      ),
    ],
    questions: gatehouse,
  },
  {
    name: "undici",
    pages: pagesIn("node_modules/undici/docs/docs/", (path) => path !== "index.md"),
    questions: undici,
  },
  {
    name: "AI SDK",
    // Sites omit the numbers, which only order the menu.
    pages: pagesIn(
      "node_modules/ai/docs/",
      () => true,
      (path) => path.replace(/(^|\/)\d+-/g, "$1"),
    ),
    questions: aiSdk,
  },
  {
    name: "Playwright",
    pages: pagesIn("node_modules/playwright-core/lib/tools/skills/", () => true),
    questions: playwright,
  },
  { name: "six languages", pages: pagesIn("bench/questions/languages/", () => true), questions: languages },
]

/** The half of a set for tuning the search, and the half that is only measured. */
export const halves = (questions: ReadonlyArray<Question>) => ({
  tuning: questions.filter((_, at) => at % 2 === 0),
  heldOut: questions.filter((_, at) => at % 2 === 1),
})
