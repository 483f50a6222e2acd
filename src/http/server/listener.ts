import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Scope } from "effect"
import { type HttpMiddleware, HttpServer, type HttpServerRequest } from "effect/http"
import { randomUUID } from "node:crypto"
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { asRouted, mayLackBody } from "../proxyAuthorization.ts"
import { underV1 } from "./Faults.ts"
import type { HotPath } from "./hotPath.ts"
import { holdContinue } from "./requestBody.ts"

/** How long a stop waits for responses that are in flight. */
const shutdownGrace = "5 seconds"

/**
 * How many services may be added to the context of a request before Effect copies the whole context. A request adds
 * fewer. With Effect's default of 8, each request copies all services: `GET /healthz` takes 12 % more CPU.
 */
const maxContextDepth = 24

const behindHandlers = /^gatehouse\/(domain|infrastructure)\//

/**
 * A context without the services behind the handlers. A handler has them in a context of its own, which Effect merges
 * with the request's: with all services in both, merging is a tenth of the CPU time of a simple request.
 */
const forRequests = ({ mapUnsafe }: Context.Context<never>) =>
  Context.makeUnsafe<never>(new Map([...mapUnsafe].filter(([key]) => !behindHandlers.test(key))), {
    maxDepth: maxContextDepth,
  })

/** Closes a server: takes no more connections, and waits for the responses in flight for the time of the grace. */
const close = ({ server, endSilent }: Listener) =>
  Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
    endSilent()
  }).pipe(Effect.timeoutOption(shutdownGrace))

type PerRequest = HttpServerRequest.HttpServerRequest | Scope.Scope

/** Where a server listens, and for how many connections. */
interface NodeServerOptions {
  readonly host: string
  readonly port: number
  readonly maxConnections: number
}

/** An `HttpServer` of Node. A request goes to the hot path first, then to the application that is served. */
export const layer = (hotPath: HotPath, { host, port, maxConnections }: NodeServerOptions) =>
  Layer.suspend(() => {
    const listener = make()
    const { server } = listener
    server.maxConnections = maxConnections
    const serve: Parameters<typeof HttpServer.make>[0]["serve"] = Effect.fnUntraced(
      function* (application, middleware) {
        const scope = Scope.forkUnsafe(yield* Effect.scope, "parallel")
        const applied = middleware as HttpMiddleware.HttpMiddleware.Applied<typeof application, unknown, PerRequest>
        const handle = yield* NodeHttpServer.makeHandler(application, { middleware: applied, scope }).pipe(
          Effect.updateContext(forRequests),
        )
        const stopResponding = respondBy(server, (request, response) => {
          if (mayLackBody(request)) response.shouldKeepAlive = false
          hotPath(request, response, () => {
            asRouted(request)
            handle(request, response)
          })
        })
        yield* Effect.addFinalizer(() => Effect.andThen(close(listener), Effect.sync(stopResponding)))
      },
    )
    return Layer.effect(
      HttpServer.HttpServer,
      Effect.map(HttpServer.HttpServer, ({ address }) => HttpServer.make({ address, serve })),
    ).pipe(Layer.provideMerge(NodeHttpServer.layer(() => server, { host, port })))
  })

type Refusal = readonly [status: number, code: string, sentence: string]

/** Node's refusals before there is a request, by Node's error code. */
const refusals: Record<string, Refusal> = {
  HPE_HEADER_OVERFLOW: [431, "headers_too_large", "The headers of the request are larger than 16 KiB."],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, "payload_too_large", "The chunk extensions of the request are too large."],
  ERR_HTTP_REQUEST_TIMEOUT: [408, "request_timeout", "The request did not arrive in time."],
}
const unreadable = [400, "invalid_request", "The request is no HTTP that can be read."] as const
const noTunnel = [404, "not_found", "There is no operation at this path. /docs lists all operations."] as const

const headersAndBody = (error: string, code: string, url = "") => {
  const body = JSON.stringify(underV1.test(url) ? { success: false, message: error, code } : { error, code })
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "x-request-id": randomUUID(),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    connection: "close",
  }
  return { headers, body }
}

/** Writes a response to a socket that has no response object, and ends the connection. */
const refuse = (socket: Duplex, [status, code, sentence]: Refusal) => {
  const { headers, body } = headersAndBody(sentence, code)
  const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join("")}\r\n${body}`)
}

const onClientError = (error: NodeJS.ErrnoException, socket: Duplex) => {
  // The client would read a second response as the body of the first.
  if (!socket.writable || error.code === "ECONNRESET" || isResponding(socket)) return void socket.destroy()
  refuse(socket, refusals[error.code ?? ""] ?? unreadable)
}

/** Refuses CONNECT. Node removes its own error listener from the socket. */
const onConnect = (_request: IncomingMessage, socket: Duplex) => {
  socket.on("error", () => {})
  refuse(socket, noTunnel)
}

/** Answers a request without reading its body, and ends the connection. */
const turnAway = ({ url }: IncomingMessage, response: ServerResponse, [status, code, sentence]: Refusal) => {
  const { headers, body } = headersAndBody(sentence, code, url)
  response.writeHead(status, headers).end(body)
}

const onExpectation = (request: IncomingMessage, response: ServerResponse) =>
  turnAway(request, response, [417, "expectation_failed", "The only expectation that is met is 100-continue."])

/** Node reads headers one by one, and leaves those after 2,000 out without a word. No client or proxy sends as many. */
const maxHeaders = 200
const tooManyHeaders = [431, "headers_too_large", `The request has more than ${maxHeaders} headers.`] as const

const twoHosts = [400, "invalid_request", "The request has more than one Host header; send one."] as const
/** Node keeps the first of several `Host` headers, and a proxy may have decided by another. */
const hasTwoHosts = ({ rawHeaders }: IncomingMessage) => {
  let hosts = 0
  for (let n = 0; n < rawHeaders.length; n += 2) {
    if (rawHeaders[n]!.length === 4 && rawHeaders[n]!.toLowerCase() === "host") hosts++
  }
  return hosts > 1
}

/** A server of Node, and what ends the connections that have sent nothing. */
interface Listener {
  readonly server: Server
  /** To Node, a connection without a first byte is not idle: it would delay the stop until `headersTimeout`. */
  readonly endSilent: () => void
}

/**
 * Makes a server of Node that answers no requests yet. It limits the time of requests and connections. Its own refusals
 * (of what is not HTTP, of headers that are too large or too slow) have the documented body.
 */
export const make = ({ maxUnreadMillis }: ConnectionLimits = defaultLimits): Listener => {
  const server = createServer({
    headersTimeout: 30_000,
    requestTimeout: 60_000,
    // How often Node checks both.
    connectionsCheckingInterval: 10_000,
    keepAliveTimeout: 65_000,
    // Node's refusal would have no body.
    requireHostHeader: false,
    // No operation speaks another protocol. RFC 9110, section 7.8, allows to answer in HTTP/1.1.
    shouldUpgradeCallback: () => false,
  })
  // Not by a listener on `data`: with one, Node reads each request through a slower stream.
  const connections = new Set<Socket>()
  const endSilent = () => connections.forEach((socket) => socket.bytesRead === 0 && socket.destroy())
  server
    .setTimeout(maxUnreadMillis, endStalled)
    .on("connection", (socket: Socket) => {
      connections.add(socket)
      socket.once("close", () => connections.delete(socket))
    })
    .on("clientError", onClientError)
    .on("checkExpectation", onExpectation)
    .on("connect", onConnect)
  return { server, endSilent }
}

/** Passes the requests of a server to `answer`, within the pipeline limit of each connection. Returns what stops it. */
export const respondBy = (
  server: Server,
  answer: RequestListener,
  { maxPipelined }: ConnectionLimits = defaultLimits,
): (() => void) => {
  const isPastLimit = pipelineLimit(maxPipelined)
  const onRequest: RequestListener = (request, response) => {
    if (isPastLimit(request.socket, response)) return
    if (request.rawHeaders.length > 2 * maxHeaders) return turnAway(request, response, tooManyHeaders)
    if (hasTwoHosts(request)) return turnAway(request, response, twoHosts)
    // A busy client would keep a connection open for as long as it sends.
    if (!server.listening) response.shouldKeepAlive = false
    if (request.headers.expect !== undefined) holdContinue(request, response)
    answer(request, response)
  }
  // With a listener on `checkContinue`, Node does not send `100 Continue` itself.
  server.on("request", onRequest).on("checkContinue", onRequest)
  return () => void server.off("request", onRequest).off("checkContinue", onRequest)
}

export interface ConnectionLimits {
  /** How many pipelined requests may wait behind the one in progress. */
  readonly maxPipelined: number
  /** How long a client may leave a response unread, in milliseconds. */
  readonly maxUnreadMillis: number
}

export const defaultLimits: ConnectionLimits = { maxPipelined: 100, maxUnreadMillis: 60_000 }

/** Whether a request of the connection is in progress. Reads a field that Node does not document. */
const isResponding = (socket: object): boolean => "_httpMessage" in socket && socket["_httpMessage"] !== null

/**
 * Counts the pipelined requests of each connection. Destroys a connection above `maxPipelined` and returns true: the
 * request of this response must not be answered.
 */
const pipelineLimit = (maxPipelined: number) => {
  const waiting = new WeakMap<Socket, number>()
  const add = (socket: Socket, count: number) => waiting.set(socket, (waiting.get(socket) ?? 0) + count)
  return (socket: Socket, response: ServerResponse): boolean => {
    // Node assigns the socket when the previous response has ended.
    if (response.socket !== null) return false
    add(socket, 1)
    response.once("finish", () => add(socket, -1))
    if (waiting.get(socket)! <= maxPipelined) return false
    socket.destroy()
    return true
  }
}

/**
 * Ends a connection after a time without traffic if a response is unread or the connection is idle. A connection whose
 * response is in progress stays open.
 */
const endStalled = (socket: Socket): void => {
  if (socket.writableLength > 0 || !isResponding(socket)) socket.destroy()
}
