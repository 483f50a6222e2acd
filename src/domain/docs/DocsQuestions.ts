import { Context, DateTime, Effect, Layer } from "effect"
import { Forbidden, NotFound, Unauthorized, type Unavailable } from "../Errors.ts"
import { nextCursor, type Page, type Found } from "../Page.ts"
import { CurrentPrincipal, managedScope } from "../Principal.ts"
import { RetentionDays } from "../Retention.ts"
import { ChatRateLimits } from "./ChatRateLimits.ts"
import { parseQuestion, wordsOf } from "./docsWords.ts"
import type { Feedback, NewQuestion, QuestionFilter, AskedQuestion, DocsQuestion, Thumb } from "./DocsQuestion.ts"
import { ProjectDocsRepository, type DocsOf } from "./ProjectDocsRepository.ts"
import { removeInBatches } from "../removeInBatches.ts"
import { cut } from "../Schemas.ts"

/** The questions that are kept for a project; the newest stay. */
const maxQuestionsOfProject = 10_000

/** The questions of readers. */
export class DocsQuestionRepository extends Context.Service<
  DocsQuestionRepository,
  {
    /**
     * Keeps questions of projects whose owners want it, if they were asked since the owner last changed the
     * documentation or erased questions. Of one that is kept already, only the feedback is written. Drops the oldest of
     * a project with more than `perProject`.
     */
    readonly insert: (questions: ReadonlyArray<NewQuestion>, perProject: number) => Effect.Effect<void, Unavailable>
    /** Sets the feedback of a question. Returns whether there is such a question. */
    readonly setThumb: (docs: DocsOf, id: string, thumb: Thumb) => Effect.Effect<boolean, Unavailable>
    /** Questions of a project, newest first. */
    readonly list: (docs: DocsOf, page: Page & QuestionFilter) => Effect.Effect<Found<DocsQuestion>, Unavailable>
    /** The topics of a project that were asked most. */
    readonly mostAsked: (
      docs: DocsOf,
      filter: QuestionFilter & { readonly limit: number },
    ) => Effect.Effect<ReadonlyArray<AskedQuestion>, Unavailable>
    /** Erases up to `limit` questions of a project, and keeps none from before `now`. Returns their number. */
    readonly erase: (docs: DocsOf, now: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
    /** Removes up to `limit` questions from before `before`. Returns their number. */
    readonly removeOld: (before: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/DocsQuestions/DocsQuestionRepository") {}

/** The questions that wait to be written. Further ones are dropped. */
const maxUnwritten = 5_000
/** Questions of one statement. */
const writeBatchSize = 500
/** Questions that one statement erases. */
const eraseBatchSize = 2_000

const questionNotFound = () =>
  new NotFound({ error: "There is no such answer: the project keeps no questions, or it was removed." })

/** The questions of readers, of projects whose owners keep them. */
export class DocsQuestions extends Context.Service<DocsQuestions>()("gatehouse/domain/DocsQuestions", {
  make: Effect.gen(function* () {
    const repository = yield* DocsQuestionRepository
    const docs = yield* ProjectDocsRepository
    const limits = yield* ChatRateLimits
    const days = yield* RetentionDays
    const unwritten = new Map<string, NewQuestion>()
    let dropped = 0

    const find = Effect.fnUntraced(function* (projectId: string) {
      return yield* docs.find(yield* managedScope, projectId)
    })

    return {
      /** Keeps a question. Never waits and never fails: the question is written with the next flush. */
      keep: (question: NewQuestion) => {
        if (unwritten.size < maxUnwritten) unwritten.set(question.id, question)
        else dropped++
      },

      /** Writes the questions since the last call. What could not be written is written by the next call. */
      flush: Effect.gen(function* () {
        const questions = [...unwritten.values()]
        for (let from = 0; from < questions.length; from += writeBatchSize) {
          const batch = questions.slice(from, from + writeBatchSize)
          yield* repository.insert(batch, maxQuestionsOfProject)
          // One that was rated meanwhile is written again.
          for (const one of batch) if (unwritten.get(one.id) === one) unwritten.delete(one.id)
        }
        if (dropped > 0) yield* Effect.logWarning(`${dropped} questions are not kept: too many wait for the database`)
        dropped = 0
      }),

      /** Records whether an answer has helped its reader. */
      rate: Effect.fn("DocsQuestions.rate")(function* ({ messageId, thumb }: Feedback, address: string) {
        const { principal } = yield* CurrentPrincipal
        if (principal._tag === "Anonymous") {
          return yield* new Unauthorized({ error: "Feedback needs a project key: Authorization: Bearer <key>." })
        }
        if (principal._tag !== "ProjectKey") return yield* new Forbidden({ error: "Feedback needs a project key." })
        yield* limits.take(principal, address)
        const waiting = unwritten.get(messageId)
        if (waiting !== undefined && waiting.projectId === principal.projectId) {
          unwritten.set(messageId, { ...waiting, thumb })
        } else if (!(yield* repository.setThumb(principal, messageId, thumb))) return yield* questionNotFound()
      }),

      list: Effect.fn("DocsQuestions.list")(function* (projectId: string, page: Page & QuestionFilter) {
        const found = yield* repository.list(yield* find(projectId), page)
        return { questions: found.items, nextCursor: nextCursor(found, ({ id }) => id) }
      }),

      mostAsked: Effect.fn("DocsQuestions.mostAsked")(function* (
        projectId: string,
        filter: QuestionFilter & { readonly limit: number },
      ) {
        return { questions: yield* repository.mostAsked(yield* find(projectId), filter) }
      }),

      erase: Effect.fn("DocsQuestions.erase")(function* (projectId: string) {
        const [record, now] = [yield* find(projectId), yield* DateTime.now]
        while ((yield* repository.erase(record, now, eraseBatchSize)) >= eraseBatchSize);
      }),

      /** Removes the questions that are older than the retention, batch by batch. */
      removeOld: Effect.gen(function* () {
        if (days === undefined) return
        const before = DateTime.subtract(yield* DateTime.now, { days })
        yield* removeInBatches(eraseBatchSize, (size) => repository.removeOld(before, size))
      }).pipe(Effect.withSpan("DocsQuestions.removeOld")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** The characters of a question that are kept. */
const maxKeptLength = 1_000
/** The characters of a topic. */
const maxTopicLength = 200

/** The text and the topic of a question to keep; `undefined` for small talk, such as "thanks!". */
export const keptText = (text: string): { readonly question: string; readonly topic: string } | undefined => {
  const { asksForPage, names, words } = parseQuestion(text)
  if (words.length === 0 && names.length === 0 && !asksForPage) return undefined
  const question = cut(text.replaceAll("\0", "").trim().toWellFormed(), maxKeptLength)
  return { question, topic: cut(wordsOf(question).join(" "), maxTopicLength) }
}
