import { Effect } from "effect"
import { cut } from "../Schemas.ts"
import { limits } from "./Chat.ts"
import type { SearchableDocs } from "./DocsIndexes.ts"
import { pageUrl, type Passage, slugAt } from "./DocsPassages.ts"
import type { Skill } from "./Documents.ts"
import type { ModelTool } from "./LanguageModel.ts"

/** The characters of all tool results of one chat. They are part of every later prompt. */
const maxResultsCharacters = 120_000
/** The characters of one result. A longer one is cut. */
const maxResultCharacters = 24_000
/** The calls of tools of one chat: each searches all pages or copies one, and a model may make any number in a step. */
const maxCalls = 50

const noRoom = "There is no room for more. Answer from what you have."

const shortened = (text: string, length: number) =>
  text.length <= length ? text : `${cut(text, length)}\n\n[The rest is left out.]`

const show =
  (docsUrl: string | undefined) =>
  ({ heading, slug, text }: Passage) => {
    const url = docsUrl === undefined ? "" : `url: ${pageUrl(slug, docsUrl)}\n`
    return `slug: ${slug}\n${url}heading: ${heading}\n\n${text}`
  }

/** A tool without its function: its name, what it is for, and what it takes. */
export type ToolDefinition = Omit<ModelTool, "run">

/** The tools that search and read documentation. */
export const docsToolDefinitions = {
  search: {
    name: "search_docs",
    description: "Searches the documentation. Returns the best passages with the slugs of their pages.",
    parameter: { name: "query", description: "What to look for: a few words, as the documentation would say it." },
  },
  read: {
    name: "read_page",
    description: "Reads a whole page of the documentation.",
    parameter: { name: "slug", description: "The slug of the page, as search_docs returns it." },
  },
} satisfies Record<string, ToolDefinition>

interface DocsToolOptions {
  readonly docs: SearchableDocs
  readonly pageSlug?: string | undefined
  /** The address of the documentation's site. With it, results have URLs. */
  readonly docsUrl?: string | undefined
  /** Cuts a result. */
  readonly limited?: (text: string) => string
}

const lost = () => Effect.succeed("The documentation cannot be looked at any more. Answer from what you have.")

/** The tools that search and read documentation. */
export const docsTools = ({
  docs,
  docsUrl,
  limited = (text) => shortened(text, maxResultCharacters),
  pageSlug,
}: DocsToolOptions): ReadonlyArray<ModelTool> => [
  {
    ...docsToolDefinitions.search,
    run: (query) =>
      docs.search(query, { pageSlug, limit: limits.foundPassages }).pipe(
        Effect.map((found) =>
          limited(found.length === 0 ? "Nothing fits. Try other words." : found.map(show(docsUrl)).join("\n\n---\n\n")),
        ),
        Effect.catchTag("Unavailable", lost),
      ),
  },
  {
    ...docsToolDefinitions.read,
    run: (slug) =>
      docs.page(slugAt(slug, docsUrl)).pipe(
        Effect.map((page) => limited(page?.markdown ?? "There is no page of this slug. Search for it.")),
        Effect.catchTag("Unavailable", lost),
      ),
  },
]

/** The tools of the model for one chat. Without documentation or skills, their tools are left out. */
export const chatTools = (options: {
  readonly docs: SearchableDocs | undefined
  readonly pageSlug: string | undefined
  readonly skills: ReadonlyArray<Skill>
}): ReadonlyArray<ModelTool> => {
  const { docs, pageSlug, skills } = options
  let left = maxResultsCharacters
  let calls = 0
  const limited = (text: string) => {
    if (left <= 0) return noRoom
    const result = shortened(text, Math.min(left, maxResultCharacters))
    left -= result.length
    return result
  }
  const tools = docs === undefined ? [] : [...docsTools({ docs, pageSlug, limited })]
  if (skills.length > 0) {
    tools.push({
      name: "read_skill",
      description: "Reads a skill: how something is done, step by step.",
      parameter: { name: "name", description: "The name of the skill." },
      run: (name) =>
        Effect.sync(() =>
          limited(skills.find((skill) => skill.name === name)?.markdown ?? "There is no skill of this name."),
        ),
    })
  }
  const limitedCalls = ({ run, ...tool }: ModelTool): ModelTool => ({
    ...tool,
    run: (given) => Effect.suspend(() => (++calls > maxCalls ? Effect.succeed(noRoom) : run(given))),
  })
  return tools.map(limitedCalls)
}
