import type { DateTime } from "effect"
import { Context, type Effect } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { AskedQuestion, DocsQuestion, NewQuestion, QuestionFilter, Thumb } from "./DocsQuestion.ts"
import type { DocsOf } from "./ProjectDocsRepository.ts"

/** The questions that are kept for a project; the newest stay. */
export const maxQuestionsOfProject = 10_000

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
