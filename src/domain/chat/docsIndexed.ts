import type MiniSearch from "minisearch"
import type { Language } from "./docsLanguages.ts"
import type { Passage } from "./DocsPassages.ts"

/** A passage of an index. */
export interface Stored extends Passage {
  readonly id: number
  /** The normalized slug of its page. */
  readonly page: string
  readonly language: Language
}

/** How much a passage is about a name. */
export const nameStrength = { mentioned: 0, inRow: 1, inReference: 2, inHeading: 3, isHeading: 4, isPage: 5 }

/** An index of passages. */
export interface Indexed {
  readonly search: Pick<MiniSearch<Stored & { readonly more: string }>, "search">
  readonly passages: ReadonlyArray<Stored>
  /** In how many passages each word is. */
  readonly vocabulary: ReadonlyMap<string, number>
  /** The passages of each name: id × 8, plus how much the passage is about it (`nameStrength`). */
  readonly names: ReadonlyMap<string, ReadonlyArray<number>>
  readonly languages: ReadonlySet<Language>
}
