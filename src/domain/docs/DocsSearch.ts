import MiniSearch from "minisearch"
import type { SearchResult } from "minisearch"
import {
  descriptionOf,
  type Indexed,
  nameStrength,
  type Page,
  type Passage,
  passagesOf,
  type Stored,
} from "./DocsPassages.ts"
import { withoutNumbers } from "./docsSlugs.ts"
import {
  definedIn,
  formsOf,
  indexedWordsOf,
  isCertainName,
  isGeneral,
  isStopWord,
  isWithin,
  joinedAt,
  type Language,
  languageOf,
  nameKey,
  namesIn,
  type ParsedQuestion,
  parseQuestion,
  partsOf,
  stem,
  wordsOf,
} from "./docsWords.ts"

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

/** A slug without percent-encoding: `location.pathname` has it. */
const decoded = (slug: string) => {
  try {
    return decodeURIComponent(slug)
  } catch {
    return slug
  }
}

/** The forms of a slug under which its page is found, from the slug itself to what sites and zips may add to it. */
const slugForms = (slug: string): ReadonlyArray<string> => {
  const trimmed = slug.replace(/^\/+/, "").replace(/(?<!\/)\/+$/, "")
  const file = trimmed.replace(/\.(?:mdx?|markdown|html?)$/i, "")
  const folder = file.replace(/(^|\/)(?:index|readme)$/i, "")
  return [slug, trimmed, file, folder, withoutNumbers(folder)]
}

/** Pages by the forms of their slugs. Of two pages with one form, it is that of the page whose slug is closer to it. */
const bySlugForm = (pages: ReadonlyArray<Page>): ReadonlyMap<string, Page> => {
  const forms = pages.flatMap((page) => slugForms(page.slug).map((form, level) => ({ form, level, page })))
  // A map keeps the last one of a key.
  return new Map(forms.sort((a, b) => b.level - a.level).map(({ form, page }) => [form, page]))
}

/**
 * The different words of an index. English documentation has about ten thousand. In a text that never repeats a word,
 * an index would need a hundred bytes of memory for each byte of the text.
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

/**
 * The memory to reserve for the index of a text, in bytes, before its words and passages are counted. The different
 * words of prose grow with the square root of its length: 45 KB take about 1.3 MB, of which this is one and a half
 * times. Text in which every word differs takes more, see `maxOvershoot`.
 */
export const expectedBytes = (characters: number) => characters * bytesPerCharacter + 8_000 * Math.sqrt(characters)
/** What one index may take beyond its reservation, in bytes. What does not fit into both is not searchable. */
export const maxOvershoot = 8 * 1024 * 1024

/** Searches and reads indexed pages. */
const reader = (index: Indexed, pages: ReadonlyMap<string, Page>): Pick<DocsIndex, "page" | "search"> => {
  /** The page with a slug. The slug of a site can lack the upper folders of the zip. */
  const pageOf = (slug: string) => {
    const forms = [slug, decoded(slug)].flatMap(slugForms)
    const found = forms.find((form) => pages.has(form))
    if (found !== undefined) return pages.get(found)
    const end = `/${forms.at(-2)}`
    return end === "/" ? undefined : [...pages].find(([form]) => form.endsWith(end))?.[1]
  }

  return {
    page: pageOf,
    search: (question, { pageSlug, before = [], limit }) => {
      const page = pageSlug === undefined ? undefined : pageOf(pageSlug)?.slug
      const parts = partsOf(question)
      const whole = rank(index, question, { page, before })
      // What one part refers to can be in the part before it.
      const ofPart = (part: string, at: number) =>
        rank(index, part, { page, before: [...before, ...parts.slice(0, at)] })
      const ranked = parts.length > 1 ? takingTurns([whole, ...parts.map(ofPart)]) : whole
      return ranked.slice(0, limit).map(({ slug, title, heading, text }) => ({ slug, title, heading, text }))
    },
  }
}

/** The best of each list, then the second of each, without what is there already. */
const takingTurns = (lists: ReadonlyArray<ReadonlyArray<Stored>>): ReadonlyArray<Stored> => {
  const longest = Math.max(...lists.map((list) => list.length))
  const inTurns = Array.from({ length: longest }, (_, at) => lists.flatMap((list) => list[at] ?? []))
  return [...new Set(inTurns.flat())]
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
    tokenize: indexedWordsOf,
    processTerm: termOf,
    autoVacuum: false,
  })

  /** Adds the names of a passage, with how much it is about each. */
  const addNames = ({ id, heading, text }: Stored) => {
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
 * Indexes documentation, and yields after each short step so that other work can run. Passages beyond `maxBytes` of
 * memory are not indexed; their pages can still be read.
 */
export function* indexing(pages: ReadonlyArray<Page>, maxBytes: number): Generator<undefined, DocsIndex> {
  const bySlug = bySlugForm(pages)
  const { indexed, begin, add, bytes } = makeIndexed()
  const text = textBytes(pages)
  const bytesPerUnit = text / Math.max(textCharacters(pages), 1)
  let characters = 0
  /** The memory of the index, and of the text that is not indexed. */
  const totalBytes = () => bytes() + characters * bytesPerCharacter + Math.max(text - characters * bytesPerUnit, 0)
  let isWhole = true
  for (const page of pages) {
    let more = descriptionOf(page)
    const language = begin(page)
    for (const passage of passagesOf(page)) {
      characters += passage.text.length + passage.heading.length
      isWhole = totalBytes() < maxBytes
      if (!isWhole) break
      add({ ...passage, id: indexed.passages.length, language }, more)
      more = ""
      yield
    }
    if (!isWhole) break
  }
  return { ...reader(indexed, bySlug), bytes: totalBytes(), isWhole }
}

/** Indexes documentation without a pause. */
export const make = (pages: ReadonlyArray<Page>, maxBytes = Infinity): DocsIndex => {
  const steps = indexing(pages, maxBytes)
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}

/** The weights of fields. */
const fieldBoost = { heading: 2, title: 1.5, slug: 1.5, more: 1.5 }
/** The weight of the reader's page, which is above that of any field. */
const pageBoost = 4
/** The lowest score of a result, as a share of the best score. */
const minScoreShare = 0.15
/** The share of a question's words, by their rarity, that a passage and its page must have. */
const minCoverage = 0.48
/** How much the words on the rest of the page count for it. */
const pageShare = 0.25
/** The weight of a passage in the language of the question. */
const sameLanguage = 1.5
/** How much a title that the question has raises a passage, and what each further passage of a page counts. */
const titleWeight = 1
const repeatedPage = 0.6
/** The passages whose titles are compared with the question. */
const maxComparedPassages = 30
interface Scored {
  readonly passage: Stored
  readonly score: number
}

/**
 * A word that the index does not have is rarer than one that a single passage has. It counts as one of so many
 * passages.
 */
const unknownCount = 0.4
/** How rare a word is that is in so many passages. */
const rarityOf = ({ passages }: Indexed, count = unknownCount) =>
  Math.log(1 + (passages.length - count + 0.5) / (count + 0.5))

/** How much of a title the question has, by the rarity of its words, from 0 to 1. */
const titleShare = (index: Indexed, { title, language }: Stored, forms: ReadonlyMap<string, number>) => {
  const words = wordsOf(title)
  let [whole, found] = [0, 0]
  for (const [at, word] of words.entries()) {
    if (isStopWord(word, language)) continue
    const meant = [word, ...joinedAt(words, at, language)].map((one) => stem(one, language))
    const rarity = rarityOf(index, index.vocabulary.get(meant[0]!))
    whole += rarity
    found += rarity * Math.max(...meant.map((form) => forms.get(form) ?? 0))
  }
  return whole === 0 ? 0 : found / whole
}

/** Raises the best passages whose title the question has. */
const compare = (index: Indexed, scored: ReadonlyArray<Scored>, forms: ReadonlyMap<string, number>) =>
  scored
    .toSorted((a, b) => b.score - a.score)
    .map(({ passage, score }, at): Scored => {
      const raised = at < maxComparedPassages ? 1 + titleWeight * titleShare(index, passage, forms) : 1
      return { passage, score: score * raised }
    })

/** Lowers the second and later passages of a page, so that an answer shows more than one page. */
const spread = (ranked: ReadonlyArray<Scored>): ReadonlyArray<Scored> => {
  const seen = new Map<string, number>()
  return ranked
    .toSorted((a, b) => b.score - a.score)
    .map(({ passage, score }) => {
      const before = seen.get(passage.slug) ?? 0
      seen.set(passage.slug, before + 1)
      return { passage, score: score * repeatedPage ** before }
    })
}

const isHeading = (fields: ReadonlyArray<string> = []) => fields.includes("heading") || fields.includes("title")

/** The passages with the words of a question. None when no page has enough of them. */
const byWords = (index: Indexed, question: ParsedQuestion, page: string | undefined): ReadonlyArray<Scored> => {
  const { all, words, context, language } = question
  const own = words.flatMap((word) => termsOf(index, word, joinedAt(all, all.indexOf(word), language)))
  const terms = [...own, ...context.flatMap((word) => termsOf(index, word)).map(asContext)]
  const weights = heaviest(terms.flatMap(({ forms }) => [...forms]))
  if (weights.size === 0) return []
  const results: ReadonlyArray<SearchResult> = index.search.search([...weights.keys()].join(" "), {
    tokenize: (text) => text.split(" "),
    processTerm: (term) => term,
    boost: fieldBoost,
    boostTerm: (term) => weights.get(term) ?? 1,
  })
  /** The words of the question on each page. */
  const onPage = new Map<string, Set<string>>()
  for (const { id, match } of results) {
    const { slug } = index.passages[id as number]!
    const found = onPage.get(slug) ?? new Set()
    for (const form of Object.keys(match)) found.add(form)
    onPage.set(slug, found)
  }
  const required = own.length > 0 ? own : terms
  const pageCoverage = new Map(
    [...onPage].map(([name, found]) => [name, coverage(required, (form) => found.has(form))] as const),
  )
  /** The pages with a passage that has enough of the words. */
  const fitting = new Set<string>()
  for (const { id, match } of results) {
    const { slug } = index.passages[id as number]!
    const fit = (1 - pageShare) * coverage(required, (form) => form in match) + pageShare * pageCoverage.get(slug)!
    if (fit >= minCoverage) fitting.add(slug)
  }
  const scored = results.flatMap(({ id, match, score }) => {
    const passage = index.passages[id as number]!
    const ofPage = pageCoverage.get(passage.slug)!
    if (!fitting.has(passage.slug)) return []
    const ofPassage = coverage(terms, (form) => form in match)
    const ofHeading = coverage(terms, (form) => isHeading(match[form]))
    const fit = (0.3 + ofPassage) * (0.3 + ofPage) * (2 + ofHeading)
    const preferred = (passage.slug === page ? pageBoost : 1) * (passage.language === language ? sameLanguage : 1)
    return [{ passage, score: score * fit * preferred }]
  })
  return spread(compare(index, scored, weights))
}

/**
 * The passages that answer a question, best first. Those with a name of the question come first, then those with its
 * words. A name that the documentation does not have, or too few of the words, finds nothing.
 */
const rank = (
  index: Indexed,
  question: string,
  options: { readonly page?: string | undefined; readonly before?: ReadonlyArray<string> | undefined },
): ReadonlyArray<Stored> => {
  const { page, before } = options
  const parsed = parseQuestion(question, before)
  if (parsed.asksForPage && page !== undefined) return index.passages.filter((passage) => passage.slug === page)
  const named = byNames(index, parsed)
  const unknown = parsed.names.filter((name) => isCertainName(name) && !index.names.has(nameKey(name)))
  if (named.size === 0 && unknown.length > 0) return []
  const scores = new Map(byWords(index, parsed, page).map(({ passage, score }) => [passage.id, score]))
  for (const id of named.keys()) scores.set(id, scores.get(id) ?? 0)
  const best = Math.max(...scores.values(), 0)
  return [...scores]
    .filter(([id, score]) =>
      named.size > 0 ? named.has(id) || score >= best * minScoreShare : score >= best * minScoreShare,
    )
    .sort(([a, scoreA], [b, scoreB]) => (named.get(b) ?? 0) - (named.get(a) ?? 0) || scoreB - scoreA || a - b)
    .map(([id]) => index.passages[id]!)
}

/** The weight of a word that is only a part of a word of the index, and of one of an earlier question. */
const part = 0.3
const earlier = 0.5
/** How much a word of most questions counts, as a share of another one. */
const generalShare = 0.5
/** The most words of the index that one misspelled word can mean. */
const maxCorrections = 6

/** A word of the question: the words of the index that it can mean, with their weights. */
interface Term {
  readonly forms: ReadonlyMap<string, number>
  /** How rare it is. A word that the index does not have is the rarest. */
  readonly rarity: number
}

/** The ways to split an unknown word that are tried, and the passages that are read for each. */
const maxSplits = 3
const maxReadForParts = 10

/** How many changes make another word of a misspelled one. */
const changesIn = (word: string) => (word.length < 3 ? 0 : word.length < 8 ? 1 : 2)

const single = (word: string) => word.replace(/(.)\1/gu, "$1")
const sorted = (word: string) => [...word].sort().join("")

/** How certain it is that a misspelled word means another: letters in another order or doubled are common errors. */
const certainty = (form: string, word: string) =>
  single(form) === single(word) || sorted(form) === sorted(word)
    ? 0.8
    : form.length > 6
      ? 0.7
      : form.length > 3
        ? 0.4
        : 0.3

/** Stems, and those that end with i instead of y: a word without a vowel, such as "prxy", keeps its y. */
const withEndings = (forms: Iterable<string>) => new Set([...forms].flatMap((form) => [form, form.replace(/y$/, "i")]))

/**
 * The words of the index that an unknown word can mean: a similar spelling, a longer word that begins with it, or a
 * part of a compound.
 */
const corrections = ({ vocabulary }: Indexed, forms: ReadonlySet<string>) => {
  const found: Array<readonly [word: string, weight: number, count: number]> = []
  for (const form of forms) {
    const changes = changesIn(form)
    for (const [word, count] of vocabulary) {
      // Few people get the first letter wrong, and "bread" is not "read".
      const isSimilar = word[0] === form[0] && changes > 0 && isWithin(form, word, changes)
      const isPart =
        form.length > 3 &&
        (word.startsWith(form) ||
          (form.length > 4 && word.endsWith(form)) ||
          (word.length > 3 && word.length > form.length / 2 && form.startsWith(word)))
      if (isSimilar) found.push([word, certainty(form, word), count])
      else if (isPart) found.push([word, part, count])
    }
  }
  return found
    .sort((a, b) => b[1] - a[1] || b[2] - a[2])
    .slice(0, maxCorrections)
    .map(([word, weight]) => [word, weight] as const)
}

/** Words with the largest of their weights: two forms of a misspelled word can mean the same word. */
const heaviest = (weights: Iterable<readonly [word: string, weight: number]>): ReadonlyMap<string, number> => {
  const all = new Map<string, number>()
  for (const [word, weight] of weights) all.set(word, Math.max(weight, all.get(word) ?? 0))
  return all
}

/** The forms of words that the index has. */
const knownForms = ({ languages, vocabulary }: Indexed, words: Iterable<string>) =>
  [...words].flatMap((word) => [...formsOf(word, languages)]).filter((form) => vocabulary.has(form))

/** Whether a passage has two words side by side. Each is given by its forms. */
const isSaid = ({ passages, search }: Indexed, pair: ReadonlyArray<ReadonlyArray<string>>) => {
  const queries = pair.map((forms) => ({ queries: [...forms], processTerm: (term: string) => term }))
  return search
    .search({ combineWith: "AND", queries })
    .slice(0, maxReadForParts)
    .some(({ id }) => {
      const { heading, language, text } = passages[id as number]!
      const words = wordsOf(`${heading} ${text}`).map((word) => stem(word, language))
      return words.some((word, at) => pair[0]!.includes(word) && pair[1]!.includes(words[at + 1] ?? ""))
    })
}

/** The two words that an unknown word is made of, if a passage has them side by side: "ratelimit" is "rate limit". */
const partsIn = (index: Indexed, word: string) =>
  Array.from({ length: word.length }, (_, at) => [word.slice(0, at), word.slice(at)])
    .filter((parts) => parts.every((part) => part.length > 2 || /\d/.test(part)))
    .map((parts) => ({ parts, pair: parts.map((part) => knownForms(index, [part])) }))
    .filter(({ pair }) => pair.every((forms) => forms.length > 0))
    .slice(0, maxSplits)
    .find(({ pair }) => isSaid(index, pair))?.parts

/** The terms of a word of the question: one, or one for each part of a name that pages write in parts. */
const termsOf = (index: Indexed, word: string, joined: ReadonlyArray<string> = []): ReadonlyArray<Term> => {
  const { vocabulary, languages } = index
  const own = knownForms(index, [word])
  const wholes = knownForms(index, joined)
  // The e of "e-mail" asks for nothing more.
  if (word.length === 1 && wholes.length > 0) return []
  const known = [...own, ...wholes]
  const parts = known.length > 0 ? undefined : partsIn(index, word)
  if (parts !== undefined) return parts.flatMap((part) => termsOf(index, part))
  const meant =
    known.length > 0
      ? known.map((form) => [form, 1] as const)
      : corrections(index, withEndings([...formsOf(word, languages), word]))
  const counts = (own.length > 0 ? own : known).map((form) => vocabulary.get(form)!)
  const count = counts.length > 0 ? Math.max(...counts) : unknownCount
  const rarity = rarityOf(index, count) * (isGeneral(word) ? generalShare : 1)
  return [{ forms: heaviest(meant), rarity }]
}

/** A term of an earlier question. */
const asContext = ({ forms, rarity }: Term): Term => ({
  forms: new Map([...forms].map(([form, weight]) => [form, weight * earlier])),
  rarity,
})

/**
 * How much of the terms a text has, from 0 to 1. Each term counts by its rarity. `has` says whether the text contains a
 * form.
 */
const coverage = (terms: ReadonlyArray<Term>, has: (form: string) => boolean) => {
  let all = 0
  let found = 0
  for (const { forms, rarity } of terms) {
    all += rarity
    const best = [...forms].reduce((most, [form, weight]) => (has(form) ? Math.max(most, weight) : most), 0)
    found += rarity * best
  }
  return all === 0 ? 0 : found / all
}

/**
 * The passages with the names of a question, and how much each says about them: more for one that explains the name.
 */
const byNames = ({ names }: Indexed, asked: ParsedQuestion): ReadonlyMap<number, number> => {
  const strengths = new Map<number, number>()
  for (const name of asked.names) {
    const found = names.get(nameKey(name)) ?? []
    const parts = new Set(wordsOf(name))
    // "How does the built-in fetch differ?" is about more than its name.
    const isSubject = isCertainName(name) || asked.words.filter((word) => !parts.has(word)).length <= 1
    for (const entry of isSubject ? found : []) {
      const strength = entry % 8
      const id = (entry - strength) / 8
      strengths.set(id, (strengths.get(id) ?? 0) + 1 + strength)
    }
  }
  return strengths
}
