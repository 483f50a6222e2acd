import { Effect } from "effect"
import type { AnswerPart } from "./Chat.ts"
import type { SearchableDocs } from "./DocsIndexes.ts"
import type { Passage } from "./DocsPassages.ts"

/** The passages that an answer quotes. */
const maxPassages = 3

const quote = ({ slug, heading, text }: Passage) =>
  [`**${heading}** (\`${slug}\`)`, "", ...text.split("\n").map((line) => `> ${line}`)].join("\n")

const noDocs =
  "No language model is configured here, and no documentation was given, so there is nothing to answer from."
const noMatch = "No language model is configured here, and nothing in the documentation matches the question."
const found = "No language model is configured here. This is what the documentation says, word for word:"

/**
 * The answer without a model: quotes the best passages with their slugs. The same question about the same documentation
 * always gets the same answer.
 */
export const embeddedAnswer = Effect.fnUntraced(function* (
  docs: SearchableDocs | undefined,
  question: string,
  pageSlug: string | undefined,
) {
  const passages = docs === undefined ? [] : yield* docs.search(question, { pageSlug, limit: maxPassages })
  const paragraphs = [docs === undefined ? noDocs : passages.length === 0 ? noMatch : found, ...passages.map(quote)]
  const id = "answer"
  const parts: ReadonlyArray<AnswerPart> = [
    { type: "start" },
    { type: "start-step" },
    { type: "text-start", id },
    ...paragraphs.map((paragraph, at) => ({
      type: "text-delta",
      id,
      delta: at === 0 ? paragraph : `\n\n${paragraph}`,
    })),
    { type: "text-end", id },
    { type: "finish-step" },
    { type: "finish", finishReason: "stop" },
  ]
  return parts
})
