import { randomUUID } from "node:crypto"
import { type IncomingMessage, Server, type ServerOptions, type ServerResponse, STATUS_CODES } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { type ConnectionLimits, defaultLimits, endStalled, isAnswering, pipelineLimit } from "./connectionLimits.ts"
import { underV1 } from "./Faults.ts"
import type { HotPath } from "./hotPath.ts"

type Refusal = readonly [status: number, code: string, sentence: string]

/** What Node refuses before there is a request, by its error code: the status, and the sentence for it. */
const refusals: Record<string, Refusal> = {
  HPE_HEADER_OVERFLOW: [431, "headers_too_large", "The headers of the request are larger than 16 KiB."],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, "payload_too_large", "The chunk extensions of the request are too large."],
  ERR_HTTP_REQUEST_TIMEOUT: [408, "request_timeout", "The request did not arrive in time."],
}
const unreadable = [400, "invalid_request", "The request is no HTTP that can be read."] as const
const noTunnel = [404, "not_found", "There is nothing at this path."] as const

const headersAndBody = (error: string, code: string, url = "") => {
  const body = JSON.stringify(underV1.test(url) ? { success: false, message: error, code } : { error, code })
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "x-request-id": randomUUID(),
    "cache-control": "no-store",
    connection: "close",
  }
  return { headers, body }
}

/** An answer written where Node has none to give, and the end of its connection. */
const refuse = (socket: Duplex, [status, code, sentence]: Refusal) => {
  const { headers, body } = headersAndBody(sentence, code)
  const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join("")}\r\n${body}`)
}

const onClientError = (error: NodeJS.ErrnoException, socket: Duplex) => {
  // A second answer on a connection that has begun one would be read as its body.
  if (!socket.writable || error.code === "ECONNRESET" || isAnswering(socket)) return void socket.destroy()
  refuse(socket, refusals[error.code ?? ""] ?? unreadable)
}

/** This is no proxy. Nobody else reads the socket's errors from here on. */
const onConnect = (_request: IncomingMessage, socket: Duplex) => {
  socket.on("error", () => {})
  refuse(socket, noTunnel)
}

const onExpectation = ({ url }: IncomingMessage, response: ServerResponse) => {
  const sentence = "The only expectation that is met is 100-continue."
  const { headers, body } = headersAndBody(sentence, "expectation_failed", url)
  response.writeHead(417, headers).end(body)
}

/** A server that shows each request to the hot path first; the listeners of `request` get what that passes on. */
class HotServer extends Server {
  readonly #hotPath: HotPath
  readonly #isPastLimit: ReturnType<typeof pipelineLimit>
  constructor(options: ServerOptions, hotPath: HotPath, { maxPipelined }: ConnectionLimits) {
    super(options)
    this.#hotPath = hotPath
    this.#isPastLimit = pipelineLimit(maxPipelined)
  }

  override emit(event: string, ...args: ReadonlyArray<unknown>): boolean {
    if (event !== "request" && event !== "checkContinue") return super.emit(event, ...args)
    const [request, response] = args as [IncomingMessage, ServerResponse]
    if (this.#isPastLimit(request.socket, response)) return true
    if (event === "checkContinue") return super.emit(event, request, response)
    // Once it is closing, a connection ends with its answer: a busy client would hold it open as long as it sends.
    if (!this.listening) response.shouldKeepAlive = false
    this.#hotPath(request, response, () => super.emit(event, request, response))
    return true
  }
}

/**
 * Node's server with this service's limits of time and of each connection, whose own refusals (a request that is no HTTP, headers that are too
 * large or too slow) have the documented shape as well.
 */
export const make = (hotPath: HotPath, limits: ConnectionLimits = defaultLimits): Server => {
  const options = {
    headersTimeout: 30_000,
    requestTimeout: 60_000,
    // How often the two are looked at.
    connectionsCheckingInterval: 10_000,
    keepAliveTimeout: 65_000,
    // Its refusal would have no body.
    requireHostHeader: false,
    // No operation speaks another protocol: who asks for one is answered in this, as RFC 9110, section 7.8, allows.
    shouldUpgradeCallback: () => false,
  }
  const server: Server = new HotServer(options, hotPath, limits)
  // No listener on `data` tells who has sent something: with one, Node reads each request through a stream of its own.
  const connections = new Set<Socket>()
  const onConnection = (socket: Socket) => {
    connections.add(socket)
    socket.once("close", () => connections.delete(socket))
  }
  const close = server.close.bind(server)
  server.close = (done) => {
    // A connection that has brought nothing yet is no idle one to Node, and would hold the end up for its whole time.
    for (const socket of connections) if (socket.bytesRead === 0) socket.destroy()
    return close(done)
  }
  return server
    .setTimeout(limits.maxUnreadMillis, endStalled)
    .on("connection", onConnection)
    .on("clientError", onClientError)
    .on("checkExpectation", onExpectation)
    .on("connect", onConnect)
}
