import type { Indexed } from "./docsIndexed.ts"
import { isGeneral } from "./docsLanguages.ts"
import { formsOf } from "./docsQuestion.ts"
import { isWithin } from "./docsWords.ts"

/** The weight of a word that is only a part of a word of the index, and of one of an earlier question. */
const part = 0.3
const earlier = 0.5
/** A word that the index does not have is rarer than one that a single passage has. It counts as one of so many passages. */
const unknownCount = 0.4
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

/** How many changes make another word of a misspelled one. */
const changesIn = (word: string) => (word.length < 3 ? 0 : word.length < 8 ? 1 : 2)

const single = (word: string) => word.replace(/(.)\1/gu, "$1")
const sorted = (word: string) => [...word].sort().join("")

/** How certain it is that a misspelled word means another: letters in another order or doubled are common errors. */
const certainty = (form: string, word: string) =>
  single(form) === single(word) || sorted(form) === sorted(word)
    ? 0.8
    : form.length > 5
      ? 0.7
      : form.length > 3
        ? 0.4
        : 0.3

/** Stems, and those that end with i instead of y: a word without a vowel, such as "prxy", keeps its y. */
const withEndings = (forms: Iterable<string>) => new Set([...forms].flatMap((form) => [form, form.replace(/y$/, "i")]))

/** The words of the index that a word which it does not have can mean: written otherwise, begun, or a part of a compound. */
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
  return found.sort((a, b) => b[1] - a[1] || b[2] - a[2]).slice(0, maxCorrections)
}

/** Words with the largest of their weights: two forms of a misspelled word can mean the same word. */
export const heaviest = (weights: Iterable<readonly [word: string, weight: number]>): ReadonlyMap<string, number> => {
  const all = new Map<string, number>()
  for (const [word, weight] of weights) all.set(word, Math.max(weight, all.get(word) ?? 0))
  return all
}

export const termOf = (index: Indexed, word: string, isOwn: boolean): Term => {
  const { vocabulary, passages, languages } = index
  const forms = formsOf(word, languages)
  const known = [...forms].filter((form) => vocabulary.has(form))
  const meant =
    known.length > 0 ? known.map((form) => [form, 1] as const) : corrections(index, withEndings([...forms, word]))
  const count = known.reduce((most, form) => Math.max(most, vocabulary.get(form)!), 0) || unknownCount
  const rareness = Math.log(1 + (passages.length - count + 0.5) / (count + 0.5))
  const rarity = isGeneral(word) ? rareness * generalShare : rareness
  const weights = meant.map(([form, weight]) => [form, isOwn ? weight : weight * earlier] as const)
  return { forms: heaviest(weights), rarity }
}

/**
 * How much of the terms a text has, from 0 to 1. Each term counts by its rarity. `has` says whether the text contains a
 * form.
 */
export const coverage = (terms: ReadonlyArray<Term>, has: (form: string) => boolean) => {
  let all = 0
  let found = 0
  for (const { forms, rarity } of terms) {
    all += rarity
    const best = [...forms].reduce((most, [form, weight]) => (has(form) ? Math.max(most, weight) : most), 0)
    found += rarity * best
  }
  return all === 0 ? 0 : found / all
}
