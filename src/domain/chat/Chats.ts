import { Cause, Context, Duration, Effect, identity, Layer, type Scope, Stream } from "effect"
import { Digest } from "effect/crypto"
import { RateLimiter } from "effect/persistence"
import { CurrentPrincipal } from "../Principal.ts"
import type { AnswerPart, ChatRequest } from "./Chat.ts"
import { ChatRates, limits, recentTurns, textOf } from "./Chat.ts"
import { chatPrompt } from "./chatPrompt.ts"
import { chatTools } from "./chatTools.ts"
import { DocsIndexes } from "./DocsIndexes.ts"
import type { Page } from "./DocsPassages.ts"
import { type Archive, Documents } from "./Documents.ts"
import { embeddedAnswer, type EmbeddedQuestion, insteadOfModel } from "./embeddedAnswer.ts"
import {
  Forbidden,
  InvalidRequest,
  TooManyRequests,
  Unauthorized,
  type Unavailable,
  type UnprocessableContent,
} from "../Errors.ts"
import { LanguageModel } from "./LanguageModel.ts"
import { citedTexts } from "./citedTexts.ts"
import { UnverifiedSentences, verifyAnswer } from "./verifyAnswer.ts"

/** The responses of the model in one chat, including tool calls. */
const maxSteps = 8
/** The earlier questions that the search of a follow-up uses. */
const maxEarlierQuestions = 2

/** Where a fault was thrown. Its message can contain words of the reader or of the model, which no log may have. */
const placeOf = (cause: Cause.Cause<never>) => {
  const { name = "Error", stack = "" } = Cause.squash(cause) as { readonly name?: string; readonly stack?: string }
  const frames = stack.split("\n").filter((line) => /^ {4}at /.test(line))
  return [name, ...frames.slice(0, 10)].join("\n").slice(0, 2_000)
}

/** Logs why a stream failed, and ends it with an error part. An interruption stays one. */
const toErrorPart = (cause: Cause.Cause<never>): Stream.Stream<AnswerPart> =>
  Cause.hasInterruptsOnly(cause)
    ? Stream.failCause(cause)
    : Stream.fromEffect(
        Effect.as(Effect.logError("A chat failed", placeOf(cause)), {
          type: "error",
          errorText: "Something went wrong here.",
        }),
      )

/** A caller that may chat. */
interface ChatPrincipal {
  /** What the rate limit counts by. */
  readonly rateLimitKey: string
  readonly orgId: string | undefined
}

/** The caller, when it may chat: a project key, and in open mode also anyone without a credential. */
const currentCaller = (address: string) =>
  CurrentPrincipal.use(({ principal, open }): Effect.Effect<ChatPrincipal, Unauthorized | Forbidden> => {
    if (principal._tag === "ProjectKey") {
      return Effect.succeed({ rateLimitKey: `key ${principal.keyId}`, orgId: principal.orgId })
    }
    if (principal._tag !== "Anonymous") return Effect.fail(new Forbidden({ error: "A chat needs a project key." }))
    return open
      ? Effect.succeed({ rateLimitKey: `address ${address}`, orgId: undefined })
      : Effect.fail(new Unauthorized({ error: "A chat needs a project key: Authorization: Bearer <key>." }))
  })

const tooManyChats = (error: RateLimiter.RateLimiterError) =>
  error.reason._tag === "RateLimitExceeded"
    ? Effect.fail(
        new TooManyRequests({
          error: "The limit of chats per minute is reached; try again after the seconds in Retry-After.",
          retryAfterSeconds: Math.max(1, Math.ceil(Duration.toSeconds(error.reason.retryAfter))),
        }),
      )
    : Effect.die(error)

/** The question: the text of the last message. Fails when the message is not the user's, is empty or is too long. */
const questionOf = ({ messages }: ChatRequest): Effect.Effect<string, InvalidRequest> => {
  const at = messages.length - 1
  const last = messages[at]!
  const text = textOf(last)
  const invalid = (rule: string) => Effect.fail(new InvalidRequest({ error: `messages.${at} ${rule}.` }))
  if (last.role !== "user") return invalid("must be from the user, as the last message")
  if (text.trim() === "") return invalid("must have text")
  return text.length > limits.question ? invalid("must have at most 32,000 characters") : Effect.succeed(text)
}

/** The questions before the last message, oldest first, that the search of a follow-up uses. */
const questionsBefore = ({ messages }: ChatRequest) =>
  messages
    .slice(0, -1)
    .filter(({ role }) => role === "user")
    .slice(-maxEarlierQuestions)
    .map((message) => textOf(message).slice(0, limits.searched))

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
      const documents = yield* Documents
      const model = yield* LanguageModel
      const limiter = yield* RateLimiter.RateLimiter
      const digest = yield* Digest.Digest
      const rates = yield* ChatRates
      const indexes = yield* DocsIndexes
      const unverified = yield* UnverifiedSentences

      /** The digest of the pages. Reads page by page: one text of all pages would double their memory. */
      const versionOf = (pages: ReadonlyArray<Page>) =>
        Effect.reduce(
          pages,
          () => "",
          (version, { slug, markdown }) =>
            digest.digestHex(Digest.sha256, new TextEncoder().encode(`${version} ${slug.length} ${slug}${markdown}`)),
        )

      /** Opens the documentation until the scope closes. Returns `undefined` when the request has none. */
      const open = Effect.fn("Chats.index")(function* (
        owner: string,
        pages: ReadonlyArray<Page>,
        archive: Archive | undefined,
      ) {
        if (pages.length === 0 && archive === undefined) return undefined
        const version = `${yield* versionOf(pages)} ${archive?.version ?? ""}`
        const slugs = new Set(pages.map(({ slug }) => slug))
        const others = (archive?.pages ?? []).filter(({ slug }) => !slugs.has(slug))
        return yield* indexes.open({ owner, version, pages: [...pages, ...others] })
      })

      const answer = Effect.fn("Chats.answer")(function* (request: ChatRequest, address: string) {
        const { rateLimitKey: key, orgId } = yield* currentCaller(address)
        const limit = orgId === undefined ? rates.address : rates.projectKey
        yield* limiter
          .consume({ key, limit, window: "1 minute", algorithm: "token-bucket" })
          .pipe(Effect.catchTag("RateLimiterError", tooManyChats))
        const question = yield* questionOf(request)
        const { docsZipUrl, docsPages = {}, docsUrl, skillUrls = [], pageSlug } = request
        const owner = orgId ?? key
        const [archive, skills] = yield* Effect.all(
          [
            docsZipUrl === undefined ? Effect.succeed(undefined) : documents.archive({ url: docsZipUrl, orgId, owner }),
            Effect.forEach(new Set(skillUrls), (url) => documents.skill({ url, orgId, owner }), { concurrency: 4 }),
          ],
          { concurrency: 2 },
        )
        const pages = Object.entries(docsPages).map(([slug, markdown]) => ({ slug, markdown }))
        const docs = yield* open(owner, pages, archive)
        const asked = { docs, question, docsUrl, pageSlug, before: questionsBefore(request) }
        if (model.answer === undefined) return Stream.fromIterable((yield* embeddedAnswer(asked)).parts)
        const said = model.answer({
          instructions: chatPrompt({ hasDocs: docs !== undefined, pageSlug, skills }),
          turns: recentTurns(request.messages, limits.conversation),
          tools: chatTools({ docs, pageSlug, skills }),
          steps: maxSteps,
        })
        const isVerified = docs !== undefined || skills.length > 0
        return said.pipe(
          isVerified
            ? verifyAnswer({ unverified, docsUrl, textOf: citedTexts(docs, skills), fallback: fallback(asked) })
            : identity,
          Stream.catchCause(toErrorPart),
        )
      })

      return Chats.of({ answer })
    }),
  ).pipe(Layer.provide(RateLimiter.layer), Layer.provide(RateLimiter.layerStoreMemory))
}
