import { Effect } from "effect"
import type { SearchableDocs } from "./DocsIndexes.ts"
import { titleOf } from "./DocsPassages.ts"
import type { Skill } from "./Documents.ts"

/** The cited texts of one answer that are kept. */
const maxKept = 16
const skillPrefix = "skill:"

interface CitedText {
  readonly title: string
  readonly text: string
}

/** Makes the function that returns a page by its slug, or a skill by its name after `skill:`. */
export const citedTexts = (docs: SearchableDocs | undefined, skills: ReadonlyArray<Skill>) => {
  const kept = new Map<string, CitedText | undefined>()
  const look = Effect.fnUntraced(function* (slug: string) {
    if (slug.startsWith(skillPrefix)) {
      const skill = skills.find(({ name }) => name === slug.slice(skillPrefix.length))
      return skill && { title: skill.name, text: skill.markdown }
    }
    const page = docs === undefined ? undefined : yield* docs.page(slug)
    return page && { title: titleOf(page), text: page.markdown }
  })
  return Effect.fnUntraced(function* (slug: string) {
    if (kept.has(slug)) return kept.get(slug)
    const text = yield* look(slug).pipe(Effect.catchTag("Unavailable", () => Effect.undefined))
    if (kept.size >= maxKept) kept.delete(kept.keys().next().value!)
    kept.set(slug, text)
    return text
  })
}
