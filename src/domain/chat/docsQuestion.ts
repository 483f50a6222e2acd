import { isSmallTalk, isStopWord, type Language, languageOf, stem } from "./docsLanguages.ts"
import { isCertainName, namesIn } from "./docsNames.ts"
import { wordsOf } from "./docsWords.ts"

/** Words of a question that are searched, because each word costs time. */
const maxWords = 32
/** Names of a question. */
const maxQuestionNames = 8
/** Characters of a question, and of each one before it, that are searched. */
const maxCharacters = 4_000

/** A question, ready for the search. */
export interface ParsedQuestion {
  readonly language: Language
  /** All its words, in order. */
  readonly all: ReadonlyArray<string>
  /** Its words with meaning. */
  readonly words: ReadonlyArray<string>
  readonly names: ReadonlyArray<string>
  /** Words of the questions before it, when it needs them. */
  readonly context: ReadonlyArray<string>
  /** Whether it asks for the reader's page: "What does this page say?" */
  readonly asksForPage: boolean
}

const set = (words: string) => new Set(words.split(" "))
/** Words for a page. */
const pageWords = set("page article document seite artikel dokument página pagina artículo articolo documento artigo")
/** Words that ask for what a text says. */
const tellWords = set(
  "about cover covers describe describes explain explains say says said summarize summarise summary tell tells content contents " +
    "beschreibt besagt erklärt inhalt sagt steht zusammenfassen zusammenfassung fasse zusammen " +
    "contenu contient décrit dit explique résume résumé résumer parle contenido describe dice explica resume resumen resumir trata " +
    "contenuto descrive dice riassumi riassunto spiega conteúdo descreve diz explica resuma resumo trata current aktuelle aktuellen",
)
/** Words that refer to something said before. */
const backReferences = set(
  "it its that this these those they them their there one ones same other else then too more er sie es ihn ihm ihr dort damit davon dann auch " +
    "il elle ils elles le la les leur leurs y en lui eso esto esta ese esa ello ellos lo los las su sus esso essa loro ele ela eles",
)
/** First words of a question that continues another. */
const continuations = set("and but or so also und aber oder auch et mais ou y e pero ma mas o what about")

const isMeaningful = (language: Language) => (word: string) =>
  !isStopWord(word, language) && !isStopWord(word, "english") && !isSmallTalk(word)

const meaningOf = (text: string) => {
  const all = wordsOf(text.slice(0, maxCharacters))
  const language = languageOf(all)
  return { language, all, words: [...new Set(all.filter(isMeaningful(language)))].slice(0, maxWords) }
}

/**
 * Reads a question. One that refers to what was said before, or has few words of its own, gets the words of the two questions
 * before it as its context.
 *
 * @param before the questions before it, oldest first
 */
export const parseQuestion = (question: string, before: ReadonlyArray<string> = []): ParsedQuestion => {
  const { language, all, words } = meaningOf(question)
  const names = [...namesIn(question.slice(0, maxCharacters))].slice(0, maxQuestionNames)
  const asksForPage =
    words.some((word) => pageWords.has(word)) && words.every((word) => pageWords.has(word) || tellWords.has(word))
  const isTalk = all.every(isSmallTalk) || (words.length === 0 && all.some(isSmallTalk))
  const refersBack =
    !isTalk && (words.length <= 2 || continuations.has(all[0]!) || all.some((word) => backReferences.has(word)))
  const earlier = refersBack && !names.some(isCertainName) ? before.slice(-2) : []
  const context = [...new Set(earlier.flatMap((text) => meaningOf(text).words))].filter((word) => !words.includes(word))
  return { language, all, words, names, context: context.slice(0, maxWords), asksForPage }
}

/** The forms of a word under which the index of some languages may have it. */
export const formsOf = (word: string, languages: Iterable<Language>): ReadonlySet<string> =>
  new Set(Array.from(languages, (language) => stem(word, language)))
