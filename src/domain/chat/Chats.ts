import { Cause, Context, Duration, Effect, Layer, type Scope, Stream } from "effect"
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
import { embeddedAnswer } from "./embeddedAnswer.ts"
import {
  Forbidden,
  InvalidRequest,
  TooManyRequests,
  Unauthorized,
  type Unavailable,
  type UnprocessableContent,
} from "../Errors.ts"
import { LanguageModel } from "./LanguageModel.ts"

/** How many times the model may answer, calls of tools included (contract 6). */
const steps = 8

const errorPart = (errorText: string): AnswerPart => ({ type: "error", errorText })

/** A caller who may chat: what the rate limit counts by, and the org. */
interface Admitted {
  readonly key: string
  readonly orgId: string | undefined
}

/** Who may chat (contract 2): a project key; in open mode also anyone without a credential. */
const admitted = (address: string) =>
  CurrentPrincipal.use(({ principal, open }): Effect.Effect<Admitted, Unauthorized | Forbidden> => {
    if (principal._tag === "ProjectKey") {
      return Effect.succeed({ key: `key ${principal.keyId}`, orgId: principal.orgId })
    }
    if (principal._tag !== "Anonymous") return Effect.fail(new Forbidden({ error: "A chat needs a project key." }))
    return open
      ? Effect.succeed({ key: `address ${address}`, orgId: undefined })
      : Effect.fail(new Unauthorized({ error: "A chat needs a project key: Authorization: Bearer <key>." }))
  })

const tooMany = (error: RateLimiter.RateLimiterError) =>
  error.reason._tag === "RateLimitExceeded"
    ? Effect.fail(
        new TooManyRequests({
          error: "Too many chats; wait.",
          retryAfterSeconds: Math.max(1, Math.ceil(Duration.toSeconds(error.reason.retryAfter))),
        }),
      )
    : Effect.die(error)

/** The reader's question: the last message, which must be the user's and say something. */
const questionOf = ({ messages }: ChatRequest): Effect.Effect<string, InvalidRequest> => {
  const at = messages.length - 1
  const last = messages[at]!
  const text = textOf(last)
  const invalid = (rule: string) => Effect.fail(new InvalidRequest({ error: `messages.${at} ${rule}.` }))
  if (last.role !== "user") return invalid("must be from the user, as the last message")
  if (text.trim() === "") return invalid("must have text")
  return text.length > limits.question ? invalid("must have at most 32,000 characters") : Effect.succeed(text)
}

/** Chats over documentation. */
export class Chats extends Context.Service<
  Chats,
  {
    /**
     * The answer to a conversation, part by part. What is wrong with the request or its references fails before the
     * stream begins; what goes wrong later is a part of the type `error`, and the stream itself never fails.
     *
     * The scope is the answer's: its documentation stays in memory until the scope closes.
     *
     * @param address the client's address, by which callers without a key are counted
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

      /** The digest of the pages, page by page: all of them as one text would take their memory again. */
      const versionOf = (pages: ReadonlyArray<Page>) =>
        Effect.reduce(
          pages,
          () => "",
          (version, { slug, markdown }) =>
            digest.digestHex(Digest.sha256, new TextEncoder().encode(`${version} ${slug.length} ${slug}${markdown}`)),
        )

      /** The given documentation, until the scope closes; `undefined` when none was given. */
      const open = Effect.fn("Chats.index")(function* (
        owner: string,
        own: ReadonlyArray<Page>,
        archive: Archive | undefined,
      ) {
        if (own.length === 0 && archive === undefined) return undefined
        const version = `${yield* versionOf(own)} ${archive?.version ?? ""}`
        const slugs = new Set(own.map(({ slug }) => slug))
        const others = (archive?.pages ?? []).filter(({ slug }) => !slugs.has(slug))
        return yield* indexes.open({ owner, version, pages: [...own, ...others] })
      })

      const answer = Effect.fn("Chats.answer")(function* (request: ChatRequest, address: string) {
        const { key, orgId } = yield* admitted(address)
        const limit = key.startsWith("key") ? rates.projectKey : rates.address
        yield* limiter
          .consume({ key, limit, window: "1 minute", algorithm: "token-bucket" })
          .pipe(Effect.catchTag("RateLimiterError", tooMany))
        const question = yield* questionOf(request)
        const { docsZipUrl, docsPages = {}, skillUrls = [], pageSlug } = request
        const [archive, skills] = yield* Effect.all(
          [
            docsZipUrl === undefined ? Effect.succeed(undefined) : documents.archive({ url: docsZipUrl, orgId }),
            Effect.forEach(new Set(skillUrls), (url) => documents.skill({ url, orgId }), { concurrency: 4 }),
          ],
          { concurrency: 2 },
        )
        const own = Object.entries(docsPages).map(([slug, markdown]) => ({ slug, markdown }))
        const docs = yield* open(orgId ?? key, own, archive)
        if (model.answer === undefined) return Stream.fromIterable(yield* embeddedAnswer(docs, question, pageSlug))
        return model
          .answer({
            instructions: chatPrompt({ hasDocs: docs !== undefined, pageSlug, skills }),
            turns: recentTurns(request.messages, limits.conversation),
            tools: chatTools({ docs, pageSlug, skills }),
            steps,
          })
          .pipe(
            Stream.catchCause((cause) =>
              Cause.hasInterruptsOnly(cause)
                ? Stream.failCause(cause as Cause.Cause<never>)
                : Stream.fromEffect(
                    Effect.as(Effect.logError("A chat failed", cause), errorPart("Something went wrong here.")),
                  ),
            ),
          )
      })

      return Chats.of({ answer })
    }),
  ).pipe(Layer.provide(RateLimiter.layer), Layer.provide(RateLimiter.layerStoreMemory))
}
