import type { SearchResult } from "minisearch"
import type { Indexed, Stored } from "./docsIndexed.ts"
import { isStopWord, stem } from "./docsLanguages.ts"
import { byNames } from "./docsNamed.ts"
import { isCertainName, nameKey } from "./docsNames.ts"
import { parseQuestion, type ParsedQuestion } from "./docsQuestion.ts"
import { coverage, heaviest, termOf } from "./docsTerms.ts"
import { wordsOf } from "./docsWords.ts"

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
const titleWeight = 0.5
const repeatedPage = 0.6
/** The passages in which groups of words of the question are looked for. */
const maxComparedPassages = 30
interface Scored {
  readonly passage: Stored
  readonly score: number
}

/** How much of a title the question has, from 0 to 1. */
const titleShare = ({ title, language }: Stored, forms: ReadonlyMap<string, number>) => {
  const words = wordsOf(title).filter((word) => !isStopWord(word, language))
  const found = words.reduce((sum, word) => sum + (forms.get(stem(word, language)) ?? 0), 0)
  return words.length === 0 ? 0 : found / words.length
}

/** Raises the best passages whose title the question has, or that have three words of the question in its order. */
const compare = (scored: ReadonlyArray<Scored>, words: ReadonlyArray<string>, forms: ReadonlyMap<string, number>) => {
  const phrases = words.slice(2, maxComparedPassages).map((word, at) => `${words[at]} ${words[at + 1]} ${word}`)
  const sorted = scored.toSorted((a, b) => b.score - a.score)
  return sorted.map(({ passage, score }, at): Scored => {
    if (at >= maxComparedPassages) return { passage, score }
    const text = ` ${wordsOf(`${passage.heading} ${passage.text}`).join(" ")} `
    const found = phrases.filter((phrase) => text.includes(` ${phrase} `)).length
    const raised = 1 + found / Math.max(phrases.length, 1) + titleWeight * titleShare(passage, forms)
    return { passage, score: score * raised }
  })
}

/** Lowers the second and later passages of a page, so that an answer shows more than one page. */
const spread = (ranked: ReadonlyArray<Scored>): ReadonlyArray<Scored> => {
  const seen = new Map<string, number>()
  return ranked
    .toSorted((a, b) => b.score - a.score)
    .map(({ passage, score }) => {
      const before = seen.get(passage.page) ?? 0
      seen.set(passage.page, before + 1)
      return { passage, score: score * repeatedPage ** before }
    })
}

const isHeading = (fields: ReadonlyArray<string> = []) => fields.includes("heading") || fields.includes("title")

/** The passages with the words of a question. None when no page has enough of them. */
const byWords = (index: Indexed, question: ParsedQuestion, page: string | undefined): ReadonlyArray<Scored> => {
  const { words, context, language } = question
  const own = words.map((word) => termOf(index, word, true))
  const terms = [...own, ...context.map((word) => termOf(index, word, false))]
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
    const { page } = index.passages[id as number]!
    const found = onPage.get(page) ?? new Set()
    for (const form of Object.keys(match)) found.add(form)
    onPage.set(page, found)
  }
  const required = own.length > 0 ? own : terms
  const pageCoverage = new Map(
    [...onPage].map(([name, found]) => [name, coverage(required, (form) => found.has(form))] as const),
  )
  /** The pages with a passage that has enough of the words. */
  const fitting = new Set<string>()
  for (const { id, match } of results) {
    const { page } = index.passages[id as number]!
    const fit = (1 - pageShare) * coverage(required, (form) => form in match) + pageShare * pageCoverage.get(page)!
    if (fit >= minCoverage) fitting.add(page)
  }
  const scored = results.flatMap(({ id, match, score }) => {
    const passage = index.passages[id as number]!
    const ofPage = pageCoverage.get(passage.page)!
    if (!fitting.has(passage.page)) return []
    const ofPassage = coverage(terms, (form) => form in match)
    const ofHeading = coverage(terms, (form) => isHeading(match[form]))
    const fit = (0.3 + ofPassage) * (0.3 + ofPage) * (2 + ofHeading)
    const preferred = (passage.page === page ? pageBoost : 1) * (passage.language === language ? sameLanguage : 1)
    return [{ passage, score: score * fit * preferred }]
  })
  return spread(compare(scored, question.all, weights))
}

/**
 * The passages that answer a question, best first. Those with a name of the question come first, then those with its
 * words. A name that the documentation does not have, or too few of the words, finds nothing.
 */
export const rank = (
  index: Indexed,
  question: string,
  options: { readonly page?: string | undefined; readonly before?: ReadonlyArray<string> | undefined },
): ReadonlyArray<Stored> => {
  const { page, before } = options
  const parsed = parseQuestion(question, before)
  if (parsed.asksForPage && page !== undefined) return index.passages.filter((passage) => passage.page === page)
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
