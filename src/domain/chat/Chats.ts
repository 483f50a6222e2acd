import { Cause, Context, DateTime, Effect, identity, Layer, type Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { faultPlace } from "../faultPlace.ts"
import { keptText } from "../docs/keptText.ts"
import { DocsQuestions } from "../docs/DocsQuestions.ts"
import type { DocsRecord } from "../docs/ProjectDocs.ts"
import { StoredDocs } from "../docs/StoredDocs.ts"
import { CurrentPrincipal, type Principal, tenantOf } from "../Principal.ts"
import type { AnswerPart, ChatRequest } from "./Chat.ts"
import { limits as chatLimits, recentTurns, textOf } from "./Chat.ts"
import { makeChatDocs } from "./chatDocs.ts"
import { ChatRateLimits, limitKeyOf } from "./ChatRateLimits.ts"
import { chatPrompt } from "./chatPrompt.ts"
import { chatTools } from "./chatTools.ts"
import { embeddedAnswer, type EmbeddedQuestion, insteadOfModel } from "./embeddedAnswer.ts"
import {
  Forbidden,
  InvalidRequest,
  type TooManyRequests,
  Unauthorized,
  type Unavailable,
  type UnprocessableContent,
} from "../Errors.ts"
import { LanguageModel } from "./LanguageModel.ts"
import { keptAnswer } from "./keptAnswer.ts"
import { citedTexts } from "./citedTexts.ts"
import { UnverifiedSentences, verifyAnswer } from "./verifyAnswer.ts"

/** The responses of the model in one chat, including tool calls. */
const maxSteps = 8
/** The earlier questions that the search of a follow-up uses. */
const maxEarlierQuestions = 2

/** Logs why a stream failed, and ends it with an error part. An interruption stays one. */
const toErrorPart = (cause: Cause.Cause<never>): Stream.Stream<AnswerPart> =>
  Cause.hasInterruptsOnly(cause)
    ? Stream.failCause(cause)
    : Stream.fromEffect(
        Effect.as(Effect.logError("A chat failed", faultPlace(Cause.squash(cause))), {
          type: "error",
          errorText: "Something went wrong here.",
        }),
      )

/** Fails for a caller that may not chat. A project key may, and in open mode also anyone without a credential. */
const mayChat = CurrentPrincipal.use(({ principal, open }): Effect.Effect<Principal, Unauthorized | Forbidden> => {
  if (principal._tag === "ProjectKey" || (principal._tag === "Anonymous" && open)) return Effect.succeed(principal)
  return principal._tag === "Anonymous"
    ? Effect.fail(new Unauthorized({ error: "A chat needs a project key: Authorization: Bearer <key>." }))
    : Effect.fail(new Forbidden({ error: "A chat needs a project key." }))
})

/** The question: the text of the last message. Fails when the message is not the user's, is empty or is too long. */
const questionOf = ({ messages }: ChatRequest): Effect.Effect<string, InvalidRequest> => {
  const at = messages.length - 1
  const last = messages[at]!
  const text = textOf(last)
  const invalid = (rule: string) => Effect.fail(new InvalidRequest({ error: `messages.${at} ${rule}.` }))
  if (last.role !== "user") return invalid("must be from the user, as the last message")
  if (text.trim() === "") return invalid("must have text")
  return text.length > chatLimits.question ? invalid("must have at most 32,000 characters") : Effect.succeed(text)
}

/** The questions before the last message, oldest first, that the search of a follow-up uses. */
const questionsBefore = ({ messages }: ChatRequest) =>
  messages
    .slice(0, -1)
    .filter(({ role }) => role === "user")
    .slice(-maxEarlierQuestions)
    .map((message) => textOf(message).slice(0, chatLimits.searched))

/** What is said when the model has written nothing. */
const fallback = (asked: EmbeddedQuestion) =>
  insteadOfModel(asked).pipe(
    Effect.map(({ parts }) => parts),
    Effect.catchTag("Unavailable", ({ error }) =>
      Effect.succeed<ReadonlyArray<AnswerPart>>([{ type: "error", errorText: error }]),
    ),
  )

/** Chats over documentation. */
export class Chats extends Context.Service<
  Chats,
  {
    /**
     * Answers a conversation, part by part. An invalid request or reference fails before the stream begins. A later error is
     * a part with the type `error`: the stream itself never fails.
     *
     * The documentation stays in memory until the scope closes.
     *
     * @param address the client's address, by which the rate limit counts callers without a key
     */
    readonly answer: (
      request: ChatRequest,
      address: string,
    ) => Effect.Effect<
      Stream.Stream<AnswerPart>,
      Unauthorized | Forbidden | InvalidRequest | TooManyRequests | UnprocessableContent | Unavailable,
      CurrentPrincipal | Scope.Scope
    >
  }
>()("gatehouse/domain/Chats") {
  static readonly layer = Layer.effect(
    Chats,
    Effect.gen(function* () {
      const model = yield* LanguageModel
      const limits = yield* ChatRateLimits
      const { ofProject } = yield* StoredDocs
      const openDocs = yield* makeChatDocs
      const unverified = yield* UnverifiedSentences
      const questions = yield* DocsQuestions
      const { ulid } = yield* SecureRandom.SecureRandom

      /** Keeps the question of an answer, if the owner of the documentation wants it. */
      const keeping = Effect.fnUntraced(function* (
        stored: DocsRecord | undefined,
        question: string,
        parts: Stream.Stream<AnswerPart>,
      ) {
        const text = stored?.keepQuestions === true ? keptText(question) : undefined
        if (stored === undefined || text === undefined) return parts
        const { orgId, projectId } = stored
        const asked = { orgId, projectId, id: yield* ulid, askedAt: yield* DateTime.now, thumb: null, ...text }
        return keptAnswer(parts, asked.id, (found) => questions.keep({ ...asked, found }))
      })

      /** The stored documentation of the caller's project. A chat with documentation of its own does not need it. */
      const storedOf = (principal: Principal, { docsPages, docsZipUrl }: ChatRequest) => {
        if (principal._tag !== "ProjectKey") return Effect.undefined
        const isNeeded = docsPages === undefined && docsZipUrl === undefined
        const found = ofProject(principal)
        return isNeeded ? found : Effect.catchTag(found, "Unavailable", () => Effect.undefined)
      }

      const answer = Effect.fn("Chats.answer")(function* (request: ChatRequest, address: string) {
        const principal = yield* mayChat
        yield* limits.take(principal, address)
        const question = yield* questionOf(request)
        const stored = yield* storedOf(principal, request)
        const orgId = tenantOf(principal)
        const owner = orgId ?? limitKeyOf(principal, address)
        const { docs, docsUrl, skills } = yield* openDocs(request, { orgId, owner, stored })
        const { pageSlug } = request
        const asked = { docs, question, docsUrl, pageSlug, before: questionsBefore(request) }
        if (model.answer === undefined) {
          return yield* keeping(stored, question, Stream.fromIterable((yield* embeddedAnswer(asked)).parts))
        }
        const said = model.answer({
          instructions: chatPrompt({ hasDocs: docs !== undefined, pageSlug, skills }),
          turns: recentTurns(request.messages, chatLimits.conversation),
          tools: chatTools({ docs, pageSlug, skills }),
          steps: maxSteps,
        })
        const isVerified = docs !== undefined || skills.length > 0
        const answered = said.pipe(
          isVerified
            ? verifyAnswer({ unverified, docsUrl, textOf: citedTexts(docs, skills), fallback: fallback(asked) })
            : identity,
          Stream.catchCause(toErrorPart),
        )
        return yield* keeping(stored, question, answered)
      })

      return Chats.of({ answer })
    }),
  )
}
