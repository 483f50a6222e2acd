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

const stopWords = new Map(
  names.map((name) => {
    const listed = [...languages[name].stopWords, ...(more[name] ?? "").split(" ")]
    return [name, new Set(listed.flatMap((word) => [word, ...word.split("'")]).filter((word) => word !== ""))] as const
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
export const isSmallTalk = (word: string) => smallTalk.has(word)

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
