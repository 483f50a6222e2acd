import { parseQuestion } from "../chat/docsQuestion.ts"
import { wordsOf } from "../chat/docsWords.ts"

/** The characters of a question that are kept. */
const maxKeptLength = 1_000
/** The characters of a topic. */
const maxTopicLength = 200

/** The text and the topic of a question to keep; `undefined` for small talk, such as "thanks!". */
export const keptText = (text: string): { readonly question: string; readonly topic: string } | undefined => {
  const { asksForPage, names, words } = parseQuestion(text)
  if (words.length === 0 && names.length === 0 && !asksForPage) return undefined
  const question = text.replaceAll("\0", "").trim().slice(0, maxKeptLength).toWellFormed()
  return { question, topic: wordsOf(question).join(" ").slice(0, maxTopicLength).toWellFormed() }
}
