import { Effect, Queue, Redacted } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { verifyWebhook, type VerifiedWebhook, WebhookVerificationError } from "../sdk/webhooks.ts"
import { CommandFailed } from "./CommandFailed.ts"

/** What came: a webhook that is to be trusted, or why it is not. */
export type Arrival = VerifiedWebhook | { readonly refused: string }

/** More than any event has. */
const maxBytes = 4 * 1024 * 1024

/**
 * Receives webhooks on a loopback port (0: a free one) until the scope closes, and verifies them. What it trusts is
 * answered with 204, all else with 400.
 */
export const makeReceiver = Effect.fnUntraced(function* (port: number, secret: Redacted.Redacted<string>) {
  const arrivals = yield* Queue.unbounded<Arrival>()
  const receive = (headers: IncomingMessage["headers"], body: Buffer, response: ServerResponse) => {
    const arrival = verify(headers, body, Redacted.value(secret))
    Queue.offerUnsafe(arrivals, arrival)
    if ("refused" in arrival) response.writeHead(400).end(arrival.refused)
    else response.writeHead(204).end()
  }
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>, CommandFailed>((resume) => {
      const made = createServer((request, response) => {
        const chunks: Array<Buffer> = []
        let length = 0
        request.on("data", (chunk: Buffer) => {
          length += chunk.length
          if (length > maxBytes) request.destroy()
          else chunks.push(chunk)
        })
        request.on("end", () => receive(request.headers, Buffer.concat(chunks), response))
      })
      made.once("error", (error: NodeJS.ErrnoException) =>
        resume(
          Effect.fail(
            new CommandFailed({
              message: `Cannot listen on port ${port} (${error.code}). Choose another with --port`,
            }),
          ),
        ),
      )
      made.listen(port, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (server) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  )
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, next: Queue.take(arrivals) }
})

const verify = (headers: IncomingMessage["headers"], body: Buffer, secret: string): Arrival => {
  try {
    return verifyWebhook({ headers, body, secret })
  } catch (error) {
    if (error instanceof WebhookVerificationError) return { refused: error.message }
    throw error
  }
}
