import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { ByteSize, Context, Effect, Layer, Scope } from "effect"
import { HttpIncomingMessage, HttpServerRequest } from "effect/http"
import { HttpApi } from "effect/http-api"
import type { IncomingMessage, ServerResponse } from "node:http"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { InvalidRequest, PayloadTooLarge, Unavailable, UnsupportedMediaType } from "../../domain/Errors.ts"
import { CurrentPrincipal } from "../../domain/Principal.ts"
import { Api } from "../api/Api.ts"
import { maxChatBodyBytes } from "../api/chatApi.ts"
import { ChatBodies } from "../api/access.ts"
import { networkOf } from "../../domain/clientNetworks.ts"
import { clientAddress } from "../clientAddress.ts"

const KiB = 1024
const MiB = 1024 * KiB

const defaultMaxBody = MiB
const ownMaxBody = new Map<string, number>()
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint: { annotations, path } }) => {
    const maxBodyBytes = Context.getOrUndefined(annotations, HttpIncomingMessage.MaxBodySize)
    if (maxBodyBytes !== undefined) ownMaxBody.set(path, ByteSize.toNumberUnsafe(maxBodyBytes))
  },
})

/** The limit of request bodies at a URL, in bytes: the annotation of its endpoint, else 1 MiB. */
export const maxBodyAt = (url: string): number => ownMaxBody.get(url.split("?", 1)[0]!) ?? defaultMaxBody

/** What all unfinished bodies may hold together, in bytes. */
const budget = { left: 64 * MiB }

const size = (bytes: number) => (bytes < MiB ? `${bytes / KiB} KiB` : `${bytes / MiB} MiB`)

export const tooLarge = (limit: number) =>
  new PayloadTooLarge({ error: `The request body is larger than the limit of ${size(limit)}. Send a smaller one.` })
export const unreadable = new InvalidRequest({
  error: "The request could not be read: it ended early or is malformed. Send it again.",
})
const notUtf8 = new UnsupportedMediaType({ error: "The request body must be UTF-8: leave out charset, or send utf-8." })
const wrongBytes = new InvalidRequest({
  error: "The request body has bytes that are not UTF-8. Send text in UTF-8, not compressed.",
})
const noRoom = new Unavailable({ error: "Too many request bodies are being received; try again." })

/** Collects a body in one buffer that doubles, and takes its size from the budget. */
class BodyBuffer {
  #bytes = Buffer.alloc(0)
  #length = 0
  readonly #maxLength: number
  /** @param maxLength of the body, in bytes */
  constructor(maxLength: number) {
    this.#maxLength = maxLength
  }

  /** Adds a piece. Returns false when the budget has no room for it. */
  add(piece: Uint8Array): boolean {
    const length = this.#length + piece.length
    if (length > this.#bytes.length && !this.#grow(length)) return false
    this.#bytes.set(piece, this.#length)
    this.#length = length
    return true
  }

  #grow(length: number): boolean {
    const capacity = Math.min(Math.max(length, 2 * this.#bytes.length, 4 * KiB), Math.max(this.#maxLength, length))
    const more = capacity - this.#bytes.length
    if (more > budget.left) return false
    budget.left -= more
    const grown = Buffer.allocUnsafeSlow(capacity)
    grown.set(this.#bytes.subarray(0, this.#length))
    this.#bytes = grown
    return true
  }

  /** Returns the body, and its size to the budget. */
  end(): Buffer {
    budget.left += this.#bytes.length
    const whole = this.#bytes.subarray(0, this.#length)
    this.#bytes = Buffer.alloc(0)
    return whole
  }
}

/** The Content-Length of a request; `undefined` without a body, and for a body in chunks. */
const declaredLength = ({ headers }: Pick<IncomingMessage, "headers">): number | undefined =>
  headers["content-length"] === undefined ? undefined : Number(headers["content-length"])

type Failure = PayloadTooLarge | InvalidRequest | Unavailable | UnsupportedMediaType

const receivedBodies = new WeakMap<IncomingMessage, Uint8Array>()

/** Stores the body of a request that the hot path has read and passes to the router. */
export const keepBody = (request: IncomingMessage, body: Uint8Array): void => void receivedBodies.set(request, body)

/** Reads a body of at most `limit` bytes. A body in one piece takes nothing from the budget. */
const read = (request: IncomingMessage, limit: number): Effect.Effect<Uint8Array, Failure> =>
  Effect.callback((resume) => {
    const received = receivedBodies.get(request)
    if (received !== undefined) return resume(Effect.succeed(received))
    const length = declaredLength(request)
    const pieces = new BodyBuffer(length ?? limit)
    let size = 0
    let whole: Uint8Array | undefined
    const stop = () => {
      request.off("data", onData).off("end", onEnd).off("error", onBroken).off("close", onBroken)
      return pieces.end()
    }
    const fail = (failure: Failure) => {
      stop()
      // Discards the rest. After the response, Effect closes the connection at a limit.
      request.resume()
      resume(Effect.fail(failure))
    }
    const onData = (piece: Uint8Array) => {
      size += piece.length
      if (size > limit) return fail(tooLarge(limit))
      if (piece.length === length) whole = piece
      else if (!pieces.add(piece)) fail(noRoom)
    }
    const onEnd = () => {
      const bytes = stop()
      resume(Effect.succeed(whole ?? bytes))
    }
    const onBroken = () => fail(unreadable)
    if (request.destroyed) return onBroken()
    request.on("data", onData).on("end", onEnd).on("error", onBroken).on("close", onBroken)
    return Effect.sync(stop)
  })

/** Requests whose client waits for `100 Continue`, and whether their connection may stay open afterwards. */
const awaitsContinue = new WeakMap<IncomingMessage, boolean>()

/** Holds `100 Continue` back until an operation reads the body. A response before that closes the connection. */
export const holdContinue = (request: IncomingMessage, response: ServerResponse): void => {
  awaitsContinue.set(request, response.shouldKeepAlive)
  response.shouldKeepAlive = false
}

const sendContinue = (request: IncomingMessage, response: ServerResponse) => {
  const keepAlive = awaitsContinue.get(request)
  if (keepAlive === undefined || response.headersSent) return
  awaitsContinue.delete(request)
  response.shouldKeepAlive = keepAlive
  response.writeContinue()
}

const decoder = new TextDecoder("utf-8", { fatal: true })
/** Whether a content type declares no charset, or UTF-8. */
const isUtf8 = (contentType: string | undefined) =>
  contentType === undefined ||
  !/;\s*charset\s*=/i.test(contentType) ||
  /;\s*charset\s*=\s*(?:utf-?8|"utf-?8")\s*(?:;|$)/i.test(contentType)

/** Methods whose operations read no body. */
const withoutBody = new Set<string>(["GET", "HEAD"])

/**
 * Limits the body of a request to `limit` bytes, and all unfinished bodies to the budget. The operation reads the
 * body, so it is read after the credentials.
 */
export const withBoundedBody = (
  request: HttpServerRequest.HttpServerRequest,
  limit: number,
): HttpServerRequest.HttpServerRequest => {
  if (withoutBody.has(request.method)) return request
  const source = NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage
  const response = NodeHttpServerRequest.toServerResponse(request) as ServerResponse
  // A large body is not kept: it would use memory for as long as its response is streamed. Idempotency reads it first,
  // and the operation again.
  const keeps = limit <= MiB || source.headers["idempotency-key"] !== undefined
  let known: Uint8Array | undefined
  const bytes = Effect.suspend(() => {
    if (known !== undefined) return Effect.succeed(known)
    if (!isUtf8(source.headers["content-type"])) return Effect.fail(notUtf8)
    sendContinue(source, response)
    return Effect.tap(read(source, limit), (body) => Effect.sync(() => void (known = keeps ? body : undefined)))
  })
  const text = Effect.flatMap(bytes, (body) => Effect.try({ try: () => decoder.decode(body), catch: () => wrongBytes }))
  const arrayBuffer = Effect.map(bytes, (body) => Uint8Array.from(body).buffer)
  // On the request itself: with an object that inherits from it, V8 takes a third longer.
  return Object.defineProperties(request, { text: { value: text }, arrayBuffer: { value: arrayBuffer } })
}

/** The memory for the request bodies of chats. */
export const ChatBodyMemory = Context.Reference<{
  /** The bytes of all bodies together, from before they are read until their documentation is indexed. */
  readonly bytes: number
  /** Returns the memory of a large body to the operating system. */
  readonly release: Effect.Effect<void>
}>("gatehouse/http/ChatBodyMemory", {
  defaultValue: () => ({ bytes: 16 * MiB, release: Effect.void }),
})

/** How long a chat waits for memory before its body is read. */
const bodyMemoryDeadline = "10 seconds"
/** How many chats of one owner may wait for memory. */
const maxWaitingBodies = 64

/** After a body of this size, memory is returned to the operating system at once. */
const minReleasedBytes = 1024 * 1024

/** Delays reading the body of a chat until there is memory for it. One owner uses at most half, or one body. */
export const layer = Layer.effect(
  ChatBodies,
  Effect.gen(function* () {
    const { bytes, release } = yield* ChatBodyMemory
    const budget = ByteBudget.make({
      bytes,
      perOwner: bytes / 2,
      deadline: bodyMemoryDeadline,
      maxWaiting: maxWaitingBodies,
      error: "Too many chats with much documentation are being answered; try again.",
    })
    return (operation) =>
      Effect.gen(function* () {
        const { principal } = yield* CurrentPrincipal
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        // A body without a declared length counts as the largest one.
        const length = Number(headers["content-length"] ?? maxChatBodyBytes)
        const owner = principal._tag === "ProjectKey" ? principal.orgId : `address ${networkOf(yield* clientAddress)}`
        const answering = yield* Effect.scope
        // A body leaves five times its size behind; V8 would collect only after several.
        const cleaned = length < minReleasedBytes ? operation : Effect.ensuring(operation, release)
        // Only until the response begins: other limits bound the memory of the response.
        return yield* budget
          .take(owner, Math.min(length, maxChatBodyBytes))
          .pipe(Effect.andThen(Scope.provide(cleaned, answering)), Effect.scoped)
      })
  }),
)
