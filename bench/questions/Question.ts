/** A question of a reader, and the pages that answer it. */
export interface Question {
  readonly ask: string
  /** The slugs of the pages that answer it; empty when the documentation has no answer. */
  readonly pages: ReadonlyArray<string>
  /** What it tests. A name is an identifier that the first passage must contain. */
  readonly kind: "words" | "name" | "typo" | "follow-up" | "page" | "none"
  /** For a name: the identifier. */
  readonly name?: string
  /** The questions before it, oldest first. */
  readonly before?: ReadonlyArray<string>
  /** The page that the reader is on. */
  readonly pageSlug?: string
}

const slugs = (pages: string) => pages.split(" ")

export const words = (ask: string, pages: string): Question => ({ ask, pages: slugs(pages), kind: "words" })
export const typo = (ask: string, pages: string): Question => ({ ask, pages: slugs(pages), kind: "typo" })
export const named = (name: string, pages: string, ask = `What is ${name}?`): Question => ({
  ask,
  pages: slugs(pages),
  kind: "name",
  name,
})
export const after = (before: ReadonlyArray<string>, ask: string, pages: string): Question => ({
  ask,
  pages: slugs(pages),
  kind: "follow-up",
  before,
})
export const onPage = (pageSlug: string, ask: string): Question => ({ ask, pages: [pageSlug], kind: "page", pageSlug })
export const none = (ask: string): Question => ({ ask, pages: [], kind: "none" })
