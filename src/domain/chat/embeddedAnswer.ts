import { Effect } from "effect"
import { sourcePart } from "./answerSources.ts"
import type { AnswerPart } from "./Chat.ts"
import type { SearchableDocs } from "./DocsIndexes.ts"
import type { Passage } from "./DocsPassages.ts"
import { readable } from "./docsQuote.ts"
import type { SearchOptions } from "./DocsSearch.ts"

/** The passages that an answer quotes. */
const maxQuotedPassages = 3

const noModel = "No language model is configured here"
const noAnswer = "The language model has written no answer"
/** The first paragraph of an answer that quotes passages. */
const openings = {
  noDocs: (why: string) => `${why}, and no documentation was given, so there is nothing to answer from.`,
  noMatch: (why: string) => `${why}, and nothing in the documentation matches the question.`,
  found: (why: string) => `${why}. This is what the documentation says, word for word:`,
}

export interface EmbeddedQuestion extends Omit<SearchOptions, "limit"> {
  readonly docs: SearchableDocs | undefined
  readonly question: string
  /** The address of the documentation's site. */
  readonly docsUrl?: string | undefined
}

const quote = (passage: Passage, docsUrl: string | undefined) =>
  [
    `**${passage.heading}** (\`${passage.slug}\`)`,
    "",
    ...readable(passage, docsUrl)
      .split("\n")
      .map((line) => `> ${line}`),
  ].join("\n")

/** The text of an answer that quotes the best passages with their slugs, and a source for each page. */
const quotes = Effect.fnUntraced(function* (why: string, asked: EmbeddedQuestion) {
  const { docs, question, docsUrl, ...options } = asked
  const passages = docs === undefined ? [] : yield* docs.search(question, { ...options, limit: maxQuotedPassages })
  const opening = docs === undefined ? openings.noDocs : passages.length === 0 ? openings.noMatch : openings.found
  const paragraphs = [opening(why), ...passages.map((passage) => quote(passage, docsUrl))]
  const id = "answer"
  const sources = passages.filter(({ slug }, at) => passages.findIndex((other) => other.slug === slug) === at)
  const parts: ReadonlyArray<AnswerPart> = [
    { type: "text-start", id },
    ...paragraphs.map((paragraph, at) => ({
      type: "text-delta",
      id,
      delta: at === 0 ? paragraph : `\n\n${paragraph}`,
    })),
    { type: "text-end", id },
    ...sources.map(({ slug, title, text }, at) => sourcePart(at + 1, { slug, title, quotation: text }, docsUrl)),
  ]
  return { parts, found: passages.length }
})

/** The parts of a quoting answer in the place of one that the model did not write. */
export const insteadOfModel = (asked: EmbeddedQuestion) => quotes(noAnswer, asked)

/**
 * The answer without a model: quotes the best passages with their slugs. The same question about the same documentation
 * always gets the same answer.
 */
export const embeddedAnswer = (asked: EmbeddedQuestion) =>
  Effect.map(quotes(noModel, asked), ({ parts, found }) => ({
    found,
    parts: [
      { type: "start" },
      { type: "start-step" },
      ...parts,
      { type: "finish-step" },
      { type: "finish", finishReason: "stop" },
    ] as ReadonlyArray<AnswerPart>,
  }))
