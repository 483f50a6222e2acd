import type { DocsIndex } from "../../src/domain/docs/DocsSearch.ts"
import type { Question } from "./Question.ts"

/** The result of a question. */
export interface Judged {
  readonly question: Question
  /** The position of the first right passage, from 0; −1 when there is none. */
  readonly place: number
  /** The slugs of the quoted passages. */
  readonly found: ReadonlyArray<string>
}

/** Searches the index like the chat: for three passages at most. */
export const judge = (index: DocsIndex, question: Question): Judged => {
  const { ask, before = [], name, pages, pageSlug } = question
  const found = index.search(ask, { limit: 3, before, pageSlug })
  const isRight = ({ slug, heading, text }: (typeof found)[number]) =>
    pages.includes(slug) && (name === undefined || `${heading}\n${text}`.includes(name))
  return { question, place: found.findIndex(isRight), found: found.map(({ slug }) => slug) }
}

const share = <A>(all: ReadonlyArray<A>, some: (one: A) => boolean) =>
  all.length === 0 ? 1 : all.filter(some).length / all.length

/** The figures of a list of questions, as shares of 1. */
export const figuresOf = (judged: ReadonlyArray<Judged>) => {
  const answerable = judged.filter(({ question }) => question.kind !== "none")
  return {
    questions: judged.length,
    recallAt1: share(answerable, ({ place }) => place === 0),
    recallAt3: share(answerable, ({ place }) => place >= 0),
    exactNames: share(
      answerable.filter(({ question }) => question.kind === "name"),
      ({ place }) => place === 0,
    ),
    falseAnswers:
      1 -
      share(
        judged.filter(({ question }) => question.kind === "none"),
        ({ found }) => found.length === 0,
      ),
  }
}
