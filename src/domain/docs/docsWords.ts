import * as stemDanish from "@orama/stemmers/danish"
import * as stemDutch from "@orama/stemmers/dutch"
import * as stemEnglish from "@orama/stemmers/english"
import * as stemFinnish from "@orama/stemmers/finnish"
import * as stemFrench from "@orama/stemmers/french"
import * as stemGerman from "@orama/stemmers/german"
import * as stemItalian from "@orama/stemmers/italian"
import * as stemNorwegian from "@orama/stemmers/norwegian"
import * as stemPortuguese from "@orama/stemmers/portuguese"
import * as stemRussian from "@orama/stemmers/russian"
import * as stemSpanish from "@orama/stemmers/spanish"
import * as stemSwedish from "@orama/stemmers/swedish"
import { stopwords as danish } from "@orama/stopwords/danish"
import { stopwords as dutch } from "@orama/stopwords/dutch"
import { stopwords as english } from "@orama/stopwords/english"
import { stopwords as finnish } from "@orama/stopwords/finnish"
import { stopwords as french } from "@orama/stopwords/french"
import { stopwords as german } from "@orama/stopwords/german"
import { stopwords as italian } from "@orama/stopwords/italian"
import { stopwords as norwegian } from "@orama/stopwords/norwegian"
import { stopwords as portuguese } from "@orama/stopwords/portuguese"
import { stopwords as russian } from "@orama/stopwords/russian"
import { stopwords as spanish } from "@orama/stopwords/spanish"
import { stopwords as swedish } from "@orama/stopwords/swedish"

const separators = /[^\p{L}\p{N}]+/u
/** A letter of a script without spaces between words. */
export const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u
/** Words are cut to this many characters. */
const maxWordLength = 48

/** Names that are words by their marks: "C++", "C#" and "C" are three languages. */
const withNamedMarks = (text: string) =>
  text
    .replace(/(?<![\p{L}\p{N}])(\p{L})\+\+(?![\p{L}\p{N}+])/gu, "$1plusplus")
    .replace(/(?<![\p{L}\p{N}])(\p{L})#(?![\p{L}\p{N}#])/gu, "$1sharp")
    .replace(/(?<![\p{L}\p{N}])\.net(?![\p{L}\p{N}])/giu, "dotnet")

/** A word as people write it: `cplusplus` is `c++`. */
export const asWritten = (word: string) =>
  word
    .replace(/^(\p{L})plusplus$/u, "$1++")
    .replace(/^(\p{L})sharp$/u, "$1#")
    .replace(/^dotnet$/, ".net")

/** The words of a text, names in their parts. Scripts without spaces are split into overlapping pairs of characters. */
export const wordsOf = (text: string): Array<string> =>
  withNamedMarks(text)
    // "apiKey" and "api_key" are found by "key".
    .replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, "$1 $2")
    .replace(/(\p{Lu}{2})(\p{Lu}\p{Ll}{2})/gu, "$1 $2")
    .split(separators)
    .flatMap((word) => {
      if (!unspaced.test(word)) return word === "" ? [] : [word.slice(0, maxWordLength).toLowerCase()]
      const characters = [...word]
      return characters.length === 1 ? characters : characters.slice(1).map((next, at) => characters[at]! + next)
    })

const nameMarks = /[-./_]/
/** A piece of text that can be a name of several parts: it has a mark or a capital inside. */
const isCompound = (piece: string) => nameMarks.test(piece) || /[\p{Ll}\p{N}]\p{Lu}/u.test(piece)

/** The words of a text, and its names of two parts as one word each: "GitHub" is `git`, `hub` and `github`. */
export const indexedWordsOf = (text: string): Array<string> => {
  const pieces = text.split(/[^\p{L}\p{N}\-./_]+/u).flatMap((piece) => [...new Set([piece, ...piece.split(nameMarks)])])
  const names = pieces.filter(isCompound).map(wordsOf)
  const wholes = names.filter((parts) => parts.length === 2 && parts.some((part) => /\p{L}/u.test(part)))
  return [...wordsOf(text), ...wholes.map((parts) => parts.join(""))]
}

/** What a word makes with its neighbours: "socket" in "web socket proxy" makes `websocket` and `socketproxy`. */
export const joinedAt = (words: ReadonlyArray<string>, at: number, language: Language): ReadonlyArray<string> =>
  [at - 1, at].flatMap((first) => {
    const [word, next] = [words[first], words[first + 1]]
    if (word === undefined || next === undefined || isStopWord(word, language)) return []
    return /..|\d/.test(next) ? [word + next] : []
  })

/** Whether a word becomes another by at most `most` insertions, deletions, replacements or swaps of neighbours. */
export const isWithin = (one: string, other: string, most: number): boolean => {
  if (Math.abs(one.length - other.length) > most) return false
  let before: Array<number> = []
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (let i = 1; i <= one.length; i++) {
    const next = [i]
    let least = i
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1)
      let cost = Math.min(replaced, row[j]! + 1, next[j - 1]! + 1)
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
        cost = Math.min(cost, before[j - 2]! + 1)
      next.push(cost)
      least = Math.min(least, cost)
    }
    if (least > most) return false
    ;[before, row] = [row, next]
  }
  return row[other.length]! <= most
}

/** Names are cut from text at these characters. */
const around = /[\s"'`,;|<>(){}[\]*=!?…“”‘’«»¿¡]+/u
const maxNameLength = 80

const trimmed = (text: string) => text.replace(/^[.:\\]+|(?<![.:/\\-])[.:/\\-]+$/gu, "")

/**
 * Whether a text is certainly a name, and not a word: `TRUST_PROXY`, `--flag`, `/api/keys`, `7.7.4`, `a.b`, `a:b`,
 * `E1234`.
 */
export const isCertainName = (text: string) =>
  /\p{L}_|_\p{L}/u.test(text) ||
  /^--?\p{L}/u.test(text) ||
  /^\/[\p{L}\p{N}{]/u.test(text) ||
  /^v?\d+(?:\.\d+)+/u.test(text) ||
  /^\p{L}[\p{L}\p{N}]*(?:[.:][\p{L}][\p{L}\p{N}]*)+$/u.test(text) ||
  /^\p{Lu}+-?\d{2,}$/u.test(text)

/** Whether a text can be a name: `useChat`, `HOST`, `close-all`, `guides/keys`. */
const isPossibleName = (text: string) =>
  /\p{Ll}\p{Lu}/u.test(text) || /^\p{Lu}{3,}s?$/u.test(text) || /^[\p{L}\p{N}]+(?:[-/][\p{L}\p{N}]+)+$/u.test(text)

/** How a name is compared: names of capitals only with their case ("HOST" is not "host"), others without. */
export const nameKey = (name: string) => (/^\p{Lu}+$/u.test(name) ? name : name.toLowerCase())

/** The names in a text, each once. */
export const namesIn = (text: string): ReadonlySet<string> => {
  const names = new Set<string>()
  for (const piece of text.split(around)) {
    if (piece.length < 2 || piece.length > maxNameLength) continue
    const name = trimmed(piece)
    if (name.length > 1 && (isCertainName(name) || isPossibleName(name))) names.add(name)
  }
  return names
}

/** The first cell of a table's row, or the beginning of a list's item. */
const lineStart = /^ {0,3}(?:\|([^|\n]*)\||[-*+] +(?:\*\*|`)([^*`\n]+)(?:\*\*|`))/gmu

/** The names that a text explains: a row of a table or an item of a list begins with them, and with nothing else. */
export const definedIn = (text: string): ReadonlySet<string> => {
  const defined = new Set<string>()
  for (const [, cell, item] of text.matchAll(lineStart)) {
    const start = (cell ?? item)!.trim()
    const pieces = start.split(around).filter((piece) => piece !== "")
    const names = namesIn(start)
    if (pieces.length <= 3 && names.size === pieces.length) for (const name of names) defined.add(nameKey(name))
  }
  return defined
}

/** The languages whose word forms are known: the stemmer of each, and its words without meaning for a search. */
const languages = {
  english: { stemmer: stemEnglish.stemmer, stopWords: english },
  german: { stemmer: stemGerman.stemmer, stopWords: german },
  french: { stemmer: stemFrench.stemmer, stopWords: french },
  spanish: { stemmer: stemSpanish.stemmer, stopWords: spanish },
  italian: { stemmer: stemItalian.stemmer, stopWords: italian },
  portuguese: { stemmer: stemPortuguese.stemmer, stopWords: portuguese },
  dutch: { stemmer: stemDutch.stemmer, stopWords: dutch },
  danish: { stemmer: stemDanish.stemmer, stopWords: danish },
  norwegian: { stemmer: stemNorwegian.stemmer, stopWords: norwegian },
  swedish: { stemmer: stemSwedish.stemmer, stopWords: swedish },
  finnish: { stemmer: stemFinnish.stemmer, stopWords: finnish },
  russian: { stemmer: stemRussian.stemmer, stopWords: russian },
} as const

export type Language = keyof typeof languages
const names = Object.keys(languages) as ReadonlyArray<Language>

/** Words of questions that the lists of the languages do not have. */
const more: Partial<Record<Language, string>> = {
  english:
    "a about after all also am an and another any anything are as at be because been but by can could did do does for from had has " +
    "have i if in into is it its me my no not of on or our so some that the their them then there these they this to up us was " +
    "we were what your you get gets give gives giving happen happens many mean means much possible several had has have how may might one's please shall should tell us use used using want wants what's " +
    "when where which who why will with would",
  german: "bitte brauche geht gibt kann lässt möchte welche welchen welcher wie wofür wozu",
  french: "comment combien quand puis peut faut quel quelle quels quelles sert",
  spanish: "cómo cuándo cuánto cuánta qué puedo puede hay pasa sirve",
  italian: "posso può serve quando quanto",
  portuguese: "posso pode serve quando quanto",
}

const plain = (word: string) => word.normalize("NFD").replace(/\p{M}/gu, "")

/** "C" is a language, also where "c'est" is French. */
const stopWords = new Map(
  names.map((name) => {
    const listed = [...languages[name].stopWords, ...(more[name] ?? "").split(" ")]
    return [
      name,
      new Set(listed.flatMap((word) => [word, ...word.split("'")]).filter((word) => word !== "" && word !== "c")),
    ] as const
  }),
)

export const isStopWord = (word: string, language: Language) => stopWords.get(language)!.has(word)

/** The stem of a lower-case word, without accents: "Schlüsseln" and "Schlussel" have the same. */
export const stem = (word: string, language: Language): string =>
  /\d/.test(word) || word.length < 3 ? plain(word) : plain(languages[language].stemmer(word))

/** The words of a text from which its language is guessed. */
const sampleSize = 300

/** The language with the most stop words among the words of a text; English when none has more. */
export const languageOf = (words: ReadonlyArray<string>): Language => {
  const sample = words.slice(0, sampleSize)
  let best: Language = "english"
  let most = 0
  for (const name of names) {
    const found = stopWords.get(name)!
    const count = sample.reduce((sum, word) => (found.has(word) ? sum + 1 : sum), 0)
    if (count > most) [best, most] = [name, count]
  }
  return best
}

/** What people say beside their questions. A message of nothing else asks for nothing. */
const smallTalk = new Set(
  (
    "alright awesome bye cheers cool fine good goodbye great hello helped helpful hey hi lot morning nice ok okay perfect " +
    "thank thanks thx welcome wow yes evening afternoon danke dank schön vielen hallo tschüss guten tag merci bonjour " +
    "beaucoup salut gracias muchas hola adiós adios grazie mille ciao salve obrigado obrigada olá ola tchau bedankt"
  ).split(" "),
)
const isSmallTalk = (word: string) => smallTalk.has(word)

/** Words of most questions, which say little about what is asked for. */
const general = new Set(
  (
    "add again allow best better build call change check choose configure connect correctly create define difference differ enable " +
    "example examples explain find fix good handle help implement install kind know large let list look lose lost make manage " +
    "method need new number old open option options pass prevent put read really remove replace require right run save see send set " +
    "setting setup show simple simply start stop store support supported switch thing things try turn type understand update way " +
    "ways whole work works write wrong"
  ).split(" "),
)
export const isGeneral = (word: string) => general.has(word)

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
/** Words that join two questions, and words that begin one. */
const joining = set("and or also und oder sowie et ou y o e ed")
const asking = set(
  "how what when where which who whose why can could do does did is are may must should will " +
    "wie was wann wo wohin welche welcher welches wer warum weshalb wieso kann können darf muss gibt " +
    "comment que quand où quel quelle quels quelles qui pourquoi combien puis peut est-ce " +
    "cómo qué cuándo dónde cuál cuáles quién cuánto cuánta cuántos cuántas puedo puede hay " +
    "come cosa quando dove quale quali chi perché quanto quanta quanti posso può " +
    "como quais qual onde quem porque quantos quantas pode",
)
/** The questions of one text that are searched for by themselves. More are parts of the last one. */
const maxParts = 3

/**
 * The questions that a text has: "How do I pay, and how long does it take?" has two. A part without a word to search
 * for stays with the one before it.
 */
export const partsOf = (question: string): ReadonlyArray<string> => {
  const words = question.slice(0, maxCharacters).split(/\s+/)
  const parts: Array<string> = []
  let part: Array<string> = []
  const end = () => {
    const text = part.join(" ")
    if (text === "") return
    const hasWords = meaningOf(text).words.length > 0
    if (parts.length > 0 && (!hasWords || parts.length >= maxParts)) parts[parts.length - 1] += ` ${text}`
    else parts.push(text)
    part = []
  }
  for (const [at, word] of words.entries()) {
    const next = words[at + 1]?.toLowerCase() ?? ""
    const isJoin = joining.has(word.toLowerCase()) && asking.has(next)
    if (isJoin) end()
    else part.push(word)
    if (word.endsWith("?")) end()
  }
  end()
  return parts
}

const isMeaningful = (language: Language) => (word: string) =>
  !isStopWord(word, language) && !isStopWord(word, "english") && !isSmallTalk(word)

const meaningOf = (text: string) => {
  const all = wordsOf(text.slice(0, maxCharacters))
  const language = languageOf(all)
  return { language, all, words: [...new Set(all.filter(isMeaningful(language)))].slice(0, maxWords) }
}

/**
 * Reads a question. One that refers to what was said before, or has few words of its own, gets the words of the two
 * questions before it as its context.
 *
 * @param before the questions before it, oldest first
 */
export const parseQuestion = (question: string, before: ReadonlyArray<string> = []): ParsedQuestion => {
  const { language, all, words } = meaningOf(question)
  const names = [...namesIn(question.slice(0, maxCharacters))].slice(0, maxQuestionNames)
  const asksForPage =
    words.some((word) => pageWords.has(word)) && words.every((word) => pageWords.has(word) || tellWords.has(word))
  const isTalk = all.every(isSmallTalk) || (words.length === 0 && all.some(isSmallTalk))
  const refersBack = !isTalk && (words.length <= 2 || all.some((word) => backReferences.has(word)))
  const earlier = refersBack && !names.some(isCertainName) ? before.slice(-2) : []
  const context = [...new Set(earlier.flatMap((text) => meaningOf(text).words))].filter((word) => !words.includes(word))
  return { language, all, words, names, context: context.slice(0, maxWords), asksForPage }
}

/** The forms of a word under which the index of some languages may have it. */
export const formsOf = (word: string, languages: Iterable<Language>): ReadonlySet<string> =>
  new Set(Array.from(languages, (language) => stem(word, language)))
