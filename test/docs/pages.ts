import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

/** The repository's folder, with a slash at its end. */
export const repository = fileURLToPath(new URL("../../", import.meta.url))

/** A markdown page, by its path in the repository. */
export interface Page {
  readonly path: string
  readonly text: string
}

/** A fenced block: its position, its language ("" for none), and its text without the page's indent. */
export interface Block {
  readonly at: string
  readonly page: string
  readonly language: string
  readonly text: string
}

const read = (path: string): Page => ({ path, text: readFileSync(repository + path, "utf8") })

/** README.md, CONTRIBUTING.md, SECURITY.md, and every page of docs. */
export const pages: ReadonlyArray<Page> = [
  "README.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  ...readdirSync(`${repository}docs`, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".md"))
    .map((path) => `docs/${path}`)
    .sort(),
].map(read)

const fence = /^( *)```([^\n]*)\n(.*?)^\1```$/gms

/** Every fenced block of the pages, in order. */
export const blocks: ReadonlyArray<Block> = pages.flatMap(({ path, text }) =>
  [...text.matchAll(fence)].map(({ index, 1: indent, 2: language, 3: body }) => ({
    at: `${path}:${text.slice(0, index).split("\n").length}`,
    page: path,
    language: language!,
    text: body!.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  })),
)

/** A page without its fenced blocks. */
export const proseOf = ({ text }: Page): string => text.replaceAll(fence, "")

/** The id that replaces every id of an example. */
export const exampleId = "01KAF8ZJ4V2M6T8Q0R1S2T3V4W"

/** An example with ids in place of `<projectId>` and the like, and of `01M7X…`. */
export const withIds = (text: string): string => text.replaceAll(/<[a-z]\w*>|01M7X…/gi, exampleId)
