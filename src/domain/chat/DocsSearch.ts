import MiniSearch from "minisearch"
import { type Page, type Passage, passagesOf } from "./DocsPassages.ts"

/** Documentation, ready to be searched and read. */
export interface DocsIndex {
  /** The best passages for a question, best first; those of the page being read count more. */
  readonly search: (question: string, options: SearchOptions) => ReadonlyArray<Passage>
  /** A page by its slug; a slash at either end, or a file's ending, does not matter. */
  readonly page: (slug: string) => Page | undefined
  /** About how many bytes of memory this takes. */
  readonly bytes: number
  /** Whether all of it is searched: `false` when it would take more memory than it may. */
  readonly isWhole: boolean
}

export interface SearchOptions {
  /** The page that the reader is on. */
  readonly pageSlug?: string | undefined
  readonly limit: number
}

/** Words that say nothing of what a question is about. */
const stopWords = new Set(
  (
    "a about after all also am an and any are as at be because been but by can could did do does for from get had has " +
    "have how i if in into is it its me my no not of on one or our should so some that the their them then there these " +
    "they this to up us was we were what when where which who why will with would you your"
  ).split(" "),
)

/** A word without the endings of English: enough that "rotating" finds "rotate". */
const stem = (word: string) => {
  if (word.length < 4 || !/^[a-z]+$/.test(word)) return word
  if (word.endsWith("ies") || word.endsWith("ied")) return `${word.slice(0, -3)}y`
  const bare = /(?:ing|ion)$/.test(word) && word.length > 5 ? word.slice(0, -3) : word.replace(/(?:ed|es|s|e)$/, "")
  return bare.length < 3 ? word : bare
}

const separators = /[^\p{L}\p{N}]+/u
const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u
/** Longer words are no words. */
const maxWord = 48

/** The words of a text. Scripts that put no spaces between words are read in pairs of characters. */
const tokenize = (text: string): Array<string> =>
  text
    // "apiKey" and "api_key" are found by "key".
    .replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2")
    .split(separators)
    .flatMap((word) => {
      if (!unspaced.test(word)) return word === "" ? [] : [word.slice(0, maxWord)]
      const characters = [...word]
      return characters.length === 1 ? characters : characters.slice(1).map((next, at) => characters[at]! + next)
    })

const processTerm = (word: string) => {
  const lower = word.toLowerCase()
  return stopWords.has(lower) ? null : stem(lower)
}

/** How many words of a question count: a question is not an essay, and each word costs time. */
const maxTerms = 32
/** Weights. The page being read weighs more than any field does. */
const boost = { heading: 2, title: 1.5, slug: 1.5 }
const pageBoost = 3
/** A passage is worth showing when its score is at least this share of the best one's. */
const minimumShare = 0.3

const normalize = (slug: string) =>
  slug
    .replace(/^\/+/, "")
    .replace(/\/+$/, "")
    .replace(/\.mdx?$/i, "")
    .replace(/(^|\/)index$/i, "")

/**
 * How many different words are searchable: English documentation has some ten thousand, and text in which every word is
 * another would take a hundred bytes of memory for each of its own.
 */
const maxVocabulary = 150_000
/** What an index takes in memory for each character, word and passage; measured, see `bench/chat.ts`. */
const emptyBytes = 10_000
const bytesPerCharacter = 8
const bytesPerWord = 500
const bytesPerPassage = 600

const charactersOf = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + slug.length + markdown.length, 0)

/** How many bytes V8 takes for a text: one for each character unless one of them is beyond Latin-1. */
const bytesOf = (text: string) => (/[\u0100-\uffff]/.test(text) ? 2 * text.length : text.length)

/** How many bytes of memory the text of these pages takes. */
export const textBytes = (pages: ReadonlyArray<Page>) =>
  pages.reduce((sum, { slug, markdown }) => sum + bytesOf(slug) + bytesOf(markdown), 0)

/** About how many bytes of memory the index of these pages takes, before its words and passages are known. */
export const expectedBytes = (pages: ReadonlyArray<Page>) => charactersOf(pages) * bytesPerCharacter

interface Stored extends Passage {
  readonly id: number
  readonly page: string
}

/**
 * Makes documentation searchable, and yields between short steps, so that others may have their turn. Passages that would
 * take more than `maxBytes` of memory are not searched; their pages can still be read.
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
  /** With the text that is not indexed, which can be read. */
  const taken = () => bytes() + Math.max(text - characters * bytesPerUnit, 0)
  let isWhole = true
  for (const page of pages) {
    const name = normalize(page.slug)
    for (const passage of passagesOf(page)) {
      characters += passage.text.length + passage.heading.length
      isWhole = taken() < maxBytes
      if (!isWhole) break
      const stored = { ...passage, id: passages.length, page: name }
      passages.push(stored)
      search.add(stored)
      yield
    }
    if (!isWhole) break
  }
  const total = taken()
  vocabulary.clear()

  /** The page of a slug; a site's slug may lack the folders that the zip has above it. */
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
      const terms = [...new Set(tokenize(question))].filter((term) => processTerm(term) !== null).slice(0, maxTerms)
      const reading = pageSlug === undefined ? undefined : nameOf(pageSlug)
      const found = search.search(terms.join(" "), {
        boost,
        prefix: (term) => term.length > 3,
        fuzzy: (term) => (term.length > 4 ? 0.2 : false),
        maxFuzzy: 2,
        weights: { prefix: 0.3, fuzzy: 0.15 },
        ...(reading === undefined
          ? {}
          : { boostDocument: (id: number) => (passages[id]!.page === reading ? pageBoost : 1) }),
      })
      return found
        .filter(({ score }) => score >= found[0]!.score * minimumShare)
        .slice(0, limit)
        .map(({ id }) => passages[id as number]!)
        .map(({ slug, title, heading, text }) => ({ slug, title, heading, text }))
    },
    bytes: total,
    isWhole,
  }
}

/** Makes documentation searchable in one go. */
export const make = (pages: ReadonlyArray<Page>, maxBytes = Infinity): DocsIndex => {
  const steps = indexing(pages, maxBytes)
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}
