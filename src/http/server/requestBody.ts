import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, Layer, Scope } from "effect"
import { HttpServerRequest } from "effect/http"
import type { IncomingMessage, ServerResponse } from "node:http"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { InvalidRequest, PayloadTooLarge, Unavailable, UnsupportedMediaType } from "../../domain/Errors.ts"
import { CurrentPrincipal } from "../../domain/Principal.ts"
import { ChatBodyMemory } from "../../domain/docs/Documents.ts"
import { maxChatBodyBytes } from "../api/Chat.ts"
import { ChatBodies } from "../api/security.ts"
import { networkOf } from "../../domain/networks.ts"
import { clientAddress } from "../clientAddress.ts"

/** How many values the JSON of a request may have. */
export const maxValues = 100_000

const quote = 0x22
const backslash = 0x5c
const comma = 0x2c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** The index of the closing quote of the string that begins at `start`. */
const endOfString = (bytes: Uint8Array, start: number): number => {
  let at = start + 1
  while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1
  return at
}

/**
 * Whether JSON has more than `maxValues` values: objects, arrays and their members, without the names of fields. One
 * pass over the bytes; parsing a body of many small values takes a hundred times as long. The result for bytes that are
 * not JSON is undefined.
 */
export const hasTooManyValues = (bytes: Uint8Array): boolean => {
  // Each value takes a byte and a separator.
  if (bytes.length < 2 * maxValues) return false
  let values = 1
  // Whether the last token opened an object or array: unless it closes now, a first member follows.
  let isOpen = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte <= 0x20) continue
    const isEnd = byte === closeBracket || byte === closeBrace
    if (byte === comma || (isOpen && !isEnd)) values++
    if (values > maxValues) return true
    isOpen = byte === openBracket || byte === openBrace
    if (byte === quote) at = endOfString(bytes, at)
  }
  return false
}

/** The name between two quotes, as JSON decodes it. */
const nameIn = (text: string) => {
  try {
    return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text
  } catch {
    return text
  }
}

/**
 * The first name that an object in JSON has twice. Parsers differ in which of both they take (RFC 8259, section 4), so
 * that a proxy that checks or completes a body could mean another request. One pass; the result for bytes that are not
 * JSON is undefined.
 */
export const repeatedMember = (bytes: Uint8Array): string | undefined => {
  // Without a comma no object has two members. Saves 1 µs for a validation.
  if (!bytes.includes(comma)) return undefined
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  /** The names so far in each open object; `null` for an array. */
  const open: Array<Set<string> | null> = []
  let isName = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!
    if (byte === quote) {
      const end = endOfString(bytes, at)
      const names = isName ? open.at(-1) : undefined
      if (names) {
        const name = nameIn(text.toString("utf8", at + 1, end))
        if (names.has(name)) return name
        names.add(name)
      }
      isName = false
      at = end
    } else if (byte === comma) isName = true
    else if (byte === openBrace || byte === openBracket) {
      isName = byte === openBrace
      open.push(isName ? new Set() : null)
    } else if (byte === closeBrace || byte === closeBracket) open.pop()
  }
  return undefined
}

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
const maxShownName = 60
const repeated = (name: string) =>
  new InvalidRequest({
    error: `The request body has the member ${JSON.stringify(name.slice(0, maxShownName))} twice. Send it once.`,
  })
export const unreadable = new InvalidRequest({
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

const decoder = new TextDecoder()
/** Whether a content type declares no charset, or UTF-8. */
const isUtf8 = (contentType: string | undefined) =>
  contentType === undefined ||
  !/;\s*charset\s*=/i.test(contentType) ||
  /;\s*charset\s*=\s*(?:utf-?8|"utf-?8")\s*(?:;|$)/i.test(contentType)

/** Methods whose operations read no body. */
const withoutBody = new Set<string>(["GET", "HEAD"])

/**
 * Limits the body of a request to `limit` bytes and `maxValues` JSON values, and all unfinished bodies to the budget.
 * Refuses JSON with the same member twice. The operation reads the body, so it is read after the credentials.
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
    return Effect.tap(read(source, limit), (body) => {
      if (hasTooManyValues(body)) return Effect.fail(tooManyValues)
      const name = repeatedMember(body)
      if (name !== undefined) return Effect.fail(repeated(name))
      known = keeps ? body : undefined
      return Effect.void
    })
  })
  const text = Effect.map(bytes, (body) => decoder.decode(body))
  const arrayBuffer = Effect.map(bytes, (body) => Uint8Array.from(body).buffer)
  // On the request itself: with an object that inherits from it, V8 takes a third longer.
  return Object.defineProperties(request, { text: { value: text }, arrayBuffer: { value: arrayBuffer } })
}

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
