import { Effect, Queue, Redacted } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { verifyWebhook, type VerifiedWebhook, WebhookVerificationError } from "../sdk/webhooks.ts"
import { CommandFailed } from "./CommandFailed.ts"

/** A request that arrived: a verified webhook, or why it was refused. */
export type Arrival = VerifiedWebhook | { readonly refused: string }

/** A verified request, as it is passed on. */
export interface ReceivedRequest {
  readonly headers: IncomingMessage["headers"]
  readonly body: Buffer
}

/** Passes a verified request on. Returns the status of the answer. */
export type Forward = (request: ReceivedRequest) => Promise<number>

/** Limit of a request body; every event is smaller. */
const maxReceivedBodyBytes = 4 * 1024 * 1024

/**
 * Receives and verifies webhooks on a loopback port (0: a free one) until the scope closes. Answers 204 to a verified
 * webhook, or with the status of `forward`, and 400 to any other request. Fails with a `CommandFailed` when it cannot
 * listen.
 */
export const makeReceiver = Effect.fnUntraced(function* (
  port: number,
  secret: Redacted.Redacted<string>,
  forward: Forward = () => Promise.resolve(204),
) {
  const arrivals = yield* Queue.unbounded<Arrival>()
  const receive = (headers: IncomingMessage["headers"], body: Buffer, response: ServerResponse) => {
    const arrival = verify(headers, body, Redacted.value(secret))
    Queue.offerUnsafe(arrivals, arrival)
    if ("refused" in arrival) response.writeHead(400).end(arrival.refused)
    else void forward({ headers, body }).then((status) => response.writeHead(status).end())
  }
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>, CommandFailed>((resume) => {
      const made = createServer((request, response) => {
        const chunks: Array<Buffer> = []
        let length = 0
        request.on("data", (chunk: Buffer) => {
          length += chunk.length
          if (length > maxReceivedBodyBytes) request.destroy()
          else chunks.push(chunk)
        })
        request.on("end", () => receive(request.headers, Buffer.concat(chunks), response))
      })
      made.once("error", (error: NodeJS.ErrnoException) =>
        resume(
          Effect.fail(
            new CommandFailed({
              message: `Cannot listen on 127.0.0.1:${port} (${error.code}). Choose another port with --port`,
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
