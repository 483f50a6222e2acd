import { type Indexed, nameStrength } from "./docsIndexed.ts"
import { isCertainName, nameKey } from "./docsNames.ts"
import type { ParsedQuestion } from "./docsQuestion.ts"
import { wordsOf } from "./docsWords.ts"

/** The share of passages above which a possible name is a common word. */
const commonName = 0.05

/** The passages with the names of a question, and how much each says about them: more for one that explains the name. */
export const byNames = ({ names, passages }: Indexed, asked: ParsedQuestion): ReadonlyMap<number, number> => {
  const strengths = new Map<number, number>()
  for (const name of asked.names) {
    const found = names.get(nameKey(name)) ?? []
    const parts = new Set(wordsOf(name))
    // "How does the built-in fetch differ?" is about more than its name.
    const isSubject = isCertainName(name) || asked.words.filter((word) => !parts.has(word)).length <= 1
    const isCommon = !isCertainName(name) && found.length > Math.max(3, passages.length * commonName)
    for (const entry of isSubject ? found : []) {
      const strength = entry % 8
      if (isCommon && strength < nameStrength.inHeading) continue
      const id = (entry - strength) / 8
      strengths.set(id, (strengths.get(id) ?? 0) + 1 + strength)
    }
  }
  return strengths
}
