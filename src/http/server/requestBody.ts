import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { IncomingMessage, ServerResponse } from "node:http"
import { InvalidRequest, PayloadTooLarge, Unavailable, UnsupportedMediaType } from "../../domain/Errors.ts"
import { hasTooManyValues, maxValues } from "./jsonValues.ts"

const KiB = 1024
const MiB = 1024 * KiB

/** What all unfinished bodies may hold together, in bytes. */
const budget = { left: 64 * MiB }

const size = (bytes: number) => (bytes < MiB ? `${bytes / KiB} KiB` : `${bytes / MiB} MiB`)

export const tooLarge = (limit: number) =>
  new PayloadTooLarge({ error: `The request body is larger than the limit of ${size(limit)}. Send a smaller one.` })
const tooManyValues = new InvalidRequest({
  error: `The request body has more than ${maxValues.toLocaleString("en")} JSON values. Split it.`,
})
const unreadable = new InvalidRequest({
  error: "The request could not be read: it ended early or is malformed. Send it again.",
})
const notUtf8 = new UnsupportedMediaType({ error: "The request body must be UTF-8: leave out charset, or send utf-8." })
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
      // Discards the rest. After the answer, Effect closes the connection at a limit.
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

/** Holds `100 Continue` back until an operation reads the body. An answer before that closes the connection. */
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

const decoder = new TextDecoder()
/** Whether a content type declares no charset, or UTF-8. */
const isUtf8 = (contentType: string | undefined) =>
  contentType === undefined ||
  !/;\s*charset\s*=/i.test(contentType) ||
  /;\s*charset\s*=\s*(?:utf-?8|"utf-?8")\s*(?:;|$)/i.test(contentType)

/** Methods whose operations read no body. */
const withoutBody = new Set<string>(["GET", "HEAD"])

/**
 * Limits the body of a request to `limit` bytes and `maxValues` JSON values, and all unfinished bodies to the budget. The
 * operation reads the body, so it is read after the credentials.
 */
export const withBoundedBody = (
  request: HttpServerRequest.HttpServerRequest,
  limit: number,
): HttpServerRequest.HttpServerRequest => {
  if (withoutBody.has(request.method)) return request
  const source = NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage
  const response = NodeHttpServerRequest.toServerResponse(request) as ServerResponse
  // A large body is not kept: it would use memory for as long as its answer is streamed.
  const keeps = limit <= MiB
  let known: Uint8Array | undefined
  const bytes = Effect.suspend(() => {
    if (known !== undefined) return Effect.succeed(known)
    if (!isUtf8(source.headers["content-type"])) return Effect.fail(notUtf8)
    sendContinue(source, response)
    return Effect.tap(read(source, limit), (body) =>
      hasTooManyValues(body) ? Effect.fail(tooManyValues) : Effect.sync(() => void (known = keeps ? body : undefined)),
    )
  })
  const text = Effect.map(bytes, (body) => decoder.decode(body))
  const arrayBuffer = Effect.map(bytes, (body) => Uint8Array.from(body).buffer)
  // On the request itself: with an object that inherits from it, V8 takes a third longer.
  return Object.defineProperties(request, { text: { value: text }, arrayBuffer: { value: arrayBuffer } })
}
