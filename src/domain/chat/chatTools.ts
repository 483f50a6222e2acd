import { Effect } from "effect"
import type { SearchableDocs } from "./DocsIndexes.ts"
import type { Passage } from "./DocsPassages.ts"
import type { Skill } from "./Documents.ts"
import type { ModelTool } from "./LanguageModel.ts"

/** How many characters all results of one chat may have together: they are part of every later prompt. */
const room = 120_000
/** How many characters one page or skill is read to. */
const pageLength = 24_000
/** How many passages a search gives. */
const passages = 6

const bounded = (text: string, length: number) =>
  text.length <= length ? text : `${text.slice(0, length).toWellFormed()}\n\n[The rest is left out.]`

const show = ({ slug, heading, text }: Passage) => `slug: ${slug}\nheading: ${heading}\n\n${text}`

/** The model's tools for one chat: only those for which there is something to look at. */
export const chatTools = (options: {
  readonly docs: SearchableDocs | undefined
  readonly pageSlug: string | undefined
  readonly skills: ReadonlyArray<Skill>
}): ReadonlyArray<ModelTool> => {
  const { docs, pageSlug, skills } = options
  let left = room
  const spend = (text: string) => {
    if (left <= 0) return "There is no room for more. Answer from what you have."
    const given = bounded(text, Math.min(left, pageLength))
    left -= given.length
    return given
  }
  const lost = () => Effect.succeed("The documentation cannot be looked at any more. Answer from what you have.")
  const tools: Array<ModelTool> = []
  if (docs !== undefined) {
    tools.push(
      {
        name: "search_docs",
        description: "Searches the documentation. Gives the best passages with the slugs of their pages.",
        parameter: { name: "query", description: "What to look for: a few words, as the documentation would say it." },
        run: (query) =>
          docs.search(query, { pageSlug, limit: passages }).pipe(
            Effect.map((found) =>
              spend(found.length === 0 ? "Nothing fits. Try other words." : found.map(show).join("\n\n---\n\n")),
            ),
            Effect.catchTag("Unavailable", lost),
          ),
      },
      {
        name: "read_page",
        description: "Reads a whole page of the documentation.",
        parameter: { name: "slug", description: "The slug of the page, as search_docs gives it." },
        run: (slug) =>
          docs.page(slug).pipe(
            Effect.map((page) => spend(page?.markdown ?? "There is no page of this slug. Search for it.")),
            Effect.catchTag("Unavailable", lost),
          ),
      },
    )
  }
  if (skills.length > 0) {
    tools.push({
      name: "read_skill",
      description: "Reads a skill: how something is done, step by step.",
      parameter: { name: "name", description: "The name of the skill." },
      run: (name) =>
        Effect.sync(() =>
          spend(skills.find((skill) => skill.name === name)?.markdown ?? "There is no skill of this name."),
        ),
    })
  }
  return tools
}
