import { randomUUID } from "node:crypto"
import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http"
import type { Duplex } from "node:stream"

/** What Node refuses before there is a request, by its error code: the status, and the sentence for it. */
const refusals: Record<string, readonly [status: number, code: string, sentence: string]> = {
  HPE_HEADER_OVERFLOW: [431, "headers_too_large", "The headers of the request are larger than 16 KiB."],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, "payload_too_large", "The chunk extensions of the request are too large."],
  ERR_HTTP_REQUEST_TIMEOUT: [408, "request_timeout", "The request did not arrive in time."],
}
const unreadable = [400, "invalid_request", "The request is no HTTP that can be read."] as const

const headersAndBody = (error: string, code: string) => {
  const body = JSON.stringify({ error, code })
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "x-request-id": randomUUID(),
    "cache-control": "no-store",
    connection: "close",
  }
  return { headers, body }
}

const onClientError = (error: NodeJS.ErrnoException, socket: Duplex) => {
  // A second answer on a connection that has begun one would be read as its body.
  const busy = "_httpMessage" in socket && socket["_httpMessage"] !== null
  if (!socket.writable || error.code === "ECONNRESET" || busy) return void socket.destroy()
  const [status, code, sentence] = refusals[error.code ?? ""] ?? unreadable
  const { headers, body } = headersAndBody(sentence, code)
  const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join("")}\r\n${body}`)
}

const onExpectation = (_request: IncomingMessage, response: ServerResponse) => {
  const { headers, body } = headersAndBody("The only expectation that is met is 100-continue.", "expectation_failed")
  response.writeHead(417, headers).end(body)
}

/**
 * Node's server with this service's time limits, whose own refusals (a request that is no HTTP, headers that are too
 * large or too slow) have the documented shape as well.
 */
export const make = (): Server =>
  createServer({
    headersTimeout: 30_000,
    requestTimeout: 60_000,
    keepAliveTimeout: 65_000,
    // Its refusal would have no body, and nothing here depends on the name that a client uses.
    requireHostHeader: false,
  })
    .on("clientError", onClientError)
    .on("checkExpectation", onExpectation)
