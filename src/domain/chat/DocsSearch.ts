import MiniSearch from "minisearch"
import { type Page, type Passage, passagesOf } from "./DocsPassages.ts"

/** Documentation to search and to read. */
export interface DocsIndex {
  /** The best passages for a question, best first. Those of the reader's page rank higher. */
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
  readonly limit: number
}

/** Words without meaning for a search. */
const stopWords = new Set(
  (
    "a about after all also am an and any are as at be because been but by can could did do does for from get had has " +
    "have how i if in into is it its me my no not of on one or our should so some that the their them then there these " +
    "they this to up us was we were what when where which who why will with would you your"
  ).split(" "),
)

/** Removes English endings from a word, so that "rotating" finds "rotate". */
const stem = (word: string) => {
  if (word.length < 4 || !/^[a-z]+$/.test(word)) return word
  if (word.endsWith("ies") || word.endsWith("ied")) return `${word.slice(0, -3)}y`
  const bare = /(?:ing|ion)$/.test(word) && word.length > 5 ? word.slice(0, -3) : word.replace(/(?:ed|es|s|e)$/, "")
  return bare.length < 3 ? word : bare
}

const separators = /[^\p{L}\p{N}]+/u
const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u
/** Words are cut to this many characters. */
const maxWordLength = 48

/** The words of a text. Scripts without spaces are split into overlapping pairs of characters. */
const tokenize = (text: string): Array<string> =>
  text
    // "apiKey" and "api_key" are found by "key".
    .replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2")
    .split(separators)
    .flatMap((word) => {
      if (!unspaced.test(word)) return word === "" ? [] : [word.slice(0, maxWordLength)]
      const characters = [...word]
      return characters.length === 1 ? characters : characters.slice(1).map((next, at) => characters[at]! + next)
    })

const processTerm = (word: string) => {
  const lower = word.toLowerCase()
  return stopWords.has(lower) ? null : stem(lower)
}

/** Words of a question that are searched, because each word costs time. */
const maxQuestionTerms = 32
/** The weights of fields. */
const fieldBoost = { heading: 2, title: 1.5, slug: 1.5 }
/** The weight of the reader's page, which is above that of any field. */
const pageBoost = 3
/** The lowest score of a result, as a share of the best score. */
const minScoreShare = 0.3

const normalize = (slug: string) =>
  slug
    .replace(/^\/+/, "")
    .replace(/\/+$/, "")
    .replace(/\.mdx?$/i, "")
    .replace(/(^|\/)index$/i, "")

/**
 * The different words of an index. English documentation has about ten thousand. In a text that never repeats a word, an
 * index would need a hundred bytes of memory for each byte of the text.
 */
const maxVocabulary = 150_000
/** The memory of an index: when empty, and for each character, word and passage. Measured by `bench/chat.ts`. */
const emptyBytes = 10_000
const bytesPerCharacter = 8
const bytesPerWord = 500
const bytesPerPassage = 600

const charactersOf = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + slug.length + markdown.length, 0)

/** The bytes of a text in V8: one for each character, or two when a character is outside Latin-1. */
const bytesOf = (text: string) => (/[\u0100-\uffff]/.test(text) ? 2 * text.length : text.length)

/** The memory of the text of these pages, in bytes. */
export const textBytes = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + bytesOf(slug) + bytesOf(markdown), 0)

/** The estimated memory of the index of these pages in bytes, before their words and passages are counted. */
export const expectedBytes = (pages: ReadonlyArray<Page>) => charactersOf(pages) * bytesPerCharacter

interface Stored extends Passage {
  readonly id: number
  readonly page: string
}

/** Searches and reads indexed pages. */
const reader = (
  search: MiniSearch<Stored>,
  passages: ReadonlyArray<Stored>,
  byName: ReadonlyMap<string, Page>,
): Pick<DocsIndex, "page" | "search"> => {
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
    search: (question, { pageSlug, limit }) => {
      const terms = [...new Set(tokenize(question))]
        .filter((term) => processTerm(term) !== null)
        .slice(0, maxQuestionTerms)
      const reading = pageSlug === undefined ? undefined : nameOf(pageSlug)
      const found = search.search(terms.join(" "), {
        boost: fieldBoost,
        prefix: (term) => term.length > 3,
        fuzzy: (term) => (term.length > 4 ? 0.2 : false),
        maxFuzzy: 2,
        weights: { prefix: 0.3, fuzzy: 0.15 },
        ...(reading === undefined
          ? {}
          : { boostDocument: (id: number) => (passages[id]!.page === reading ? pageBoost : 1) }),
      })
      return found
        .filter(({ score }) => score >= found[0]!.score * minScoreShare)
        .slice(0, limit)
        .map(({ id }) => passages[id as number]!)
        .map(({ slug, title, heading, text }) => ({ slug, title, heading, text }))
    },
  }
}

/**
 * Indexes documentation, and yields after each short step so that other work can run. Passages beyond `maxBytes` of memory
 * are not indexed; their pages can still be read.
 */
export function* indexing(pages: ReadonlyArray<Page>, maxBytes: number): Generator<undefined, DocsIndex> {
  const byName = new Map(pages.map((page) => [normalize(page.slug), page]))
  const vocabulary = new Set<string>()
  const search = new MiniSearch<Stored>({
    fields: ["heading", "title", "slug", "text"],
    tokenize,
    processTerm: (word) => {
      const term = processTerm(word)
      if (term === null || vocabulary.has(term)) return term
      return vocabulary.size < maxVocabulary ? (vocabulary.add(term), term) : null
    },
    searchOptions: { processTerm },
    autoVacuum: false,
  })
  const passages: Array<Stored> = []
  const text = textBytes(pages)
  const bytesPerUnit = text / Math.max(charactersOf(pages), 1)
  let characters = 0
  const bytes = () =>
    emptyBytes + characters * bytesPerCharacter + vocabulary.size * bytesPerWord + passages.length * bytesPerPassage
  /** The memory of the index, and of the text that is not indexed. */
  const totalBytes = () => bytes() + Math.max(text - characters * bytesPerUnit, 0)
  let isWhole = true
  for (const page of pages) {
    const name = normalize(page.slug)
    for (const passage of passagesOf(page)) {
      characters += passage.text.length + passage.heading.length
      isWhole = totalBytes() < maxBytes
      if (!isWhole) break
      const stored = { ...passage, id: passages.length, page: name }
      passages.push(stored)
      search.add(stored)
      yield
    }
    if (!isWhole) break
  }
  const total = totalBytes()
  vocabulary.clear()

  return { ...reader(search, passages, byName), bytes: total, isWhole }
}

/** Indexes documentation without a pause. */
export const make = (pages: ReadonlyArray<Page>, maxBytes = Infinity): DocsIndex => {
  const steps = indexing(pages, maxBytes)
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}
