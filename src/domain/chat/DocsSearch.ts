import MiniSearch from "minisearch"
import { type Language, languageOf, isStopWord, stem } from "./docsLanguages.ts"
import { type Indexed, nameStrength, type Stored } from "./docsIndexed.ts"
import { definedIn, nameKey, namesIn, wholeName } from "./docsNames.ts"
import { descriptionOf, type Page, type Passage, passagesOf } from "./DocsPassages.ts"
import { rank } from "./docsRanking.ts"
import { wordsOf } from "./docsWords.ts"

/** Documentation to search and to read. */
export interface DocsIndex {
  /** The best passages for a question, best first; none when nothing fits. Those of the reader's page rank higher. */
  readonly search: (question: string, options: SearchOptions) => ReadonlyArray<Passage>
  /** A page by its slug. Ignores slashes at both ends, and the file extension. */
  readonly page: (slug: string) => Page | undefined
  /** The approximate memory of the index, in bytes. */
  readonly bytes: number
  /** Whether all passages are indexed. `false` when they would exceed the memory limit. */
  readonly isWhole: boolean
}

export interface SearchOptions {
  /** The reader's current page. */
  readonly pageSlug?: string | undefined
  /** The reader's questions before this one, oldest first. */
  readonly before?: ReadonlyArray<string>
  readonly limit: number
}

const normalize = (slug: string) =>
  slug
    .replace(/^\/+/, "")
    .replace(/\/+$/, "")
    .replace(/\.(?:mdx?|html?)$/i, "")
    .replace(/(^|\/)index$/i, "")

/**
 * The different words of an index. English documentation has about ten thousand. In a text that never repeats a word, an
 * index would need a hundred bytes of memory for each byte of the text.
 */
const maxVocabulary = 150_000
/** The different names of an index. */
const maxIndexedNames = 100_000
/** A table or list that begins with at least so many names is a reference. */
const minReference = 5
/** The memory of an index: when empty, and for each character, word and passage. Measured by `bench/chat.ts`. */
const emptyBytes = 10_000
const bytesPerCharacter = 8
const bytesPerWord = 600
const bytesPerPassage = 800
const bytesPerName = 150
const bytesPerNamed = 16

/** The length of the text of these pages. */
export const textCharacters = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + slug.length + markdown.length, 0)

/** The bytes of a text in V8: one for each character, or two when a character is outside Latin-1. */
const bytesOf = (text: string) => (/[\u0100-\uffff]/.test(text) ? 2 * text.length : text.length)

/** The memory of the text of these pages, in bytes. */
export const textBytes = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + bytesOf(slug) + bytesOf(markdown), 0)

/** The estimated memory of the index of a text in bytes, before its words and passages are counted. */
export const expectedBytes = (characters: number) => characters * bytesPerCharacter

/** Searches and reads indexed pages. */
const reader = (index: Indexed, byName: ReadonlyMap<string, Page>): Pick<DocsIndex, "page" | "search"> => {
  /** The name of the page with a slug. The slug of a site can lack the upper folders of the zip. */
  const nameOf = (slug: string) => {
    const name = normalize(slug)
    if (byName.has(name)) return name
    return name === "" ? undefined : [...byName.keys()].find((other) => other.endsWith(`/${name}`))
  }

  return {
    page: (slug) => {
      const name = nameOf(slug)
      return name === undefined ? undefined : byName.get(name)
    },
    search: (question, { pageSlug, before, limit }) =>
      rank(index, question, { page: pageSlug === undefined ? undefined : nameOf(pageSlug), before })
        .slice(0, limit)
        .map(({ slug, title, heading, text }) => ({ slug, title, heading, text })),
  }
}

/** An empty index, and the function that adds a passage to it. */
const makeIndexed = () => {
  /** In how many passages each word is. */
  const vocabulary = new Map<string, number>()
  const names = new Map<string, Array<number>>()
  const languages = new Set<Language>()
  const passages: Array<Stored> = []
  let named = 0
  let language: Language = "english"
  let seen = new Set<string>()

  const termOf = (word: string) => {
    if (isStopWord(word, language)) return null
    const term = stem(word, language)
    const count = vocabulary.get(term)
    if (count === undefined && vocabulary.size >= maxVocabulary) return null
    if (!seen.has(term)) vocabulary.set(term, (count ?? 0) + 1)
    seen.add(term)
    return term
  }
  const search = new MiniSearch<Stored & { readonly more: string }>({
    fields: ["heading", "title", "slug", "text", "more"],
    tokenize: wordsOf,
    processTerm: termOf,
    autoVacuum: false,
  })

  /** Adds the names of a passage, with how much it is about each. */
  const addNames = ({ id, slug, title, heading, text }: Stored) => {
    const last = heading.slice(heading.lastIndexOf("›") + 1).trim()
    const defined = definedIn(text)
    const inRow = defined.size < minReference ? nameStrength.inRow : nameStrength.inReference
    const strengths = new Map<string, number>()
    const add = (found: Iterable<string>, strength: number) => {
      for (const name of found) strengths.set(nameKey(name), strength)
    }
    add(namesIn(text), nameStrength.mentioned)
    add(defined, inRow)
    add(namesIn(last), nameStrength.inHeading)
    add(wholeName(last), nameStrength.isHeading)
    if (last === title)
      add([...wholeName(title), ...wholeName(slug.slice(slug.lastIndexOf("/") + 1))], nameStrength.isPage)
    for (const [name, strength] of strengths) {
      const ids = names.get(name)
      if (ids === undefined && names.size >= maxIndexedNames) continue
      if (ids === undefined) names.set(name, [id * 8 + strength])
      else ids.push(id * 8 + strength)
      named++
    }
  }

  return {
    indexed: { search, passages, vocabulary, names, languages } satisfies Indexed,
    begin: (page: Page) => {
      language = languageOf(wordsOf(page.markdown.slice(0, 4_000)))
      languages.add(language)
      return language
    },
    add: (stored: Stored, more: string) => {
      seen = new Set()
      passages.push(stored)
      search.add({ ...stored, more })
      addNames(stored)
    },
    bytes: () =>
      emptyBytes +
      vocabulary.size * bytesPerWord +
      passages.length * bytesPerPassage +
      names.size * bytesPerName +
      named * bytesPerNamed,
  }
}

/**
 * Indexes documentation, and yields after each short step so that other work can run. Passages beyond `maxBytes` of memory
 * are not indexed; their pages can still be read.
 */
export function* indexing(pages: ReadonlyArray<Page>, maxBytes: number): Generator<undefined, DocsIndex> {
  const byName = new Map(pages.map((page) => [normalize(page.slug), page]))
  const { indexed, begin, add, bytes } = makeIndexed()
  const text = textBytes(pages)
  const bytesPerUnit = text / Math.max(textCharacters(pages), 1)
  let characters = 0
  /** The memory of the index, and of the text that is not indexed. */
  const totalBytes = () => bytes() + characters * bytesPerCharacter + Math.max(text - characters * bytesPerUnit, 0)
  let isWhole = true
  for (const page of pages) {
    const name = normalize(page.slug)
    let more = descriptionOf(page)
    const language = begin(page)
    for (const passage of passagesOf(page)) {
      characters += passage.text.length + passage.heading.length
      isWhole = totalBytes() < maxBytes
      if (!isWhole) break
      add({ ...passage, id: indexed.passages.length, page: name, language }, more)
      more = ""
      yield
    }
    if (!isWhole) break
  }
  return { ...reader(indexed, byName), bytes: totalBytes(), isWhole }
}

/** Indexes documentation without a pause. */
export const make = (pages: ReadonlyArray<Page>, maxBytes = Infinity): DocsIndex => {
  const steps = indexing(pages, maxBytes)
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}
