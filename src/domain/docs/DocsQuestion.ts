import { type DateTime, Schema } from "effect"
import { NextCursor, pageQuery } from "../Page.ts"
import { howMany, Id, time } from "../Schemas.ts"
import type { DocsOf } from "./ProjectDocsRepository.ts"

const Thumb = Schema.Literals(["up", "down"])
export type Thumb = typeof Thumb.Type

/** What a reader says of an answer. */
export const Feedback = Schema.Struct({
  messageId: Id.annotate({
    description: "The messageId of the answer's start part, which useChat has as the id of the message.",
  }),
  thumb: Thumb.annotate({ description: "Whether the answer has helped.", examples: ["up"] }),
}).annotate({ identifier: "Feedback" })
export type Feedback = typeof Feedback.Type

/** A question that a reader has asked. */
export const DocsQuestion = Schema.Struct({
  id: Id.annotate({ description: "The id of the question, a ULID." }),
  question: Schema.String.annotate({
    description: "The last message of the chat, without what is beyond 1,000 characters.",
    examples: ["How do I rotate a key?"],
  }),
  askedAt: time("When a reader asked the question."),
  found: Schema.Boolean.annotate({ description: "Whether the answer has a source.", examples: [true] }),
  thumb: Schema.NullOr(Thumb).annotate({ description: "The reader's feedback. null: none.", examples: [null] }),
}).annotate({ identifier: "DocsQuestion" })
export type DocsQuestion = typeof DocsQuestion.Type

/** Questions that differ only in case and punctuation. */
export const AskedQuestion = Schema.Struct({
  question: Schema.String.annotate({ description: "The newest of them.", examples: ["How do I rotate a key?"] }),
  times: howMany("How often it was asked.", 12),
  notFound: howMany("How often the answer had no source.", 3),
  thumbsUp: howMany("How often the answer has helped.", 2),
  thumbsDown: howMany("How often it has not.", 1),
  lastAskedAt: time("When a reader last asked the question."),
}).annotate({ identifier: "AskedQuestion" })
export type AskedQuestion = typeof AskedQuestion.Type

export const DocsQuestionPage = Schema.Struct({
  questions: Schema.Array(DocsQuestion).annotate({ description: "The questions of this page, the newest first." }),
  nextCursor: NextCursor,
}).annotate({ identifier: "DocsQuestionPage" })

const found = Schema.optionalKey(Schema.Boolean).annotateKey({
  description: "false: only questions that found nothing. true: only the others. Absent: all.",
})
const range = {
  since: Schema.optionalKey(time("Only questions that were asked at this time or later.")),
  until: Schema.optionalKey(time("Only questions that were asked before this time.")),
}
export const questionQuery = {
  ...pageQuery,
  ...range,
  found,
  thumb: Schema.optionalKey(Thumb.annotate({ description: "Only answers with this feedback. Absent: all." })),
}
export const mostAskedQuery = { limit: pageQuery.limit, ...range, found }

/** Which questions are listed. */
export interface QuestionFilter {
  readonly found?: boolean | undefined
  readonly thumb?: Thumb | undefined
  readonly since?: DateTime.Utc | undefined
  readonly until?: DateTime.Utc | undefined
}

/** A question to keep. */
export interface NewQuestion extends DocsOf {
  readonly id: string
  readonly askedAt: DateTime.Utc
  readonly question: string
  /** The question without case and punctuation. */
  readonly topic: string
  readonly found: boolean
  readonly thumb: Thumb | null
}
