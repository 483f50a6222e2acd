import { Clock, Config, Console, Effect, Layer, Option, Queue, Redacted } from "effect"
import { Command, Flag } from "effect/cli"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { stoppable } from "../boot/exitCodes.ts"
import { Signer } from "../domain/webhooks/Signatures.ts"
import { signatures } from "../infrastructure/crypto/nodeCrypto.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { type VerifiedWebhook, verifyWebhook, WebhookVerificationError } from "../sdk/webhooks.ts"
import { ask } from "./callOperation.ts"
import { checkAddress } from "./connection.ts"
import { Json, textFlag } from "./flags.ts"
import { CommandFailed, failure, plain, print, usage, whileRead } from "./output.ts"
import { newSecret } from "./secretInput.ts"

/** A flag for a loopback port. */
export const portFlag = (name: string) =>
  Flag.Int(name).pipe(
    Flag.filter(
      (port) => port >= 0 && port <= 65_535,
      () => "Expected a port from 0 (any free port) to 65535",
    ),
  )

/** The line of an arrival: text, or a JSON object. */
const line = (arrival: Arrival, json: boolean) => {
  if (json)
    return JSON.stringify("refused" in arrival ? { verified: false, ...arrival } : { verified: true, ...arrival })
  if ("refused" in arrival) return `refused: ${plain(arrival.refused)}`
  return plain(`verified ${arrival.deliveryId ?? "without an id"}: ${JSON.stringify(arrival.event)}`)
}

/** Receives, verifies and prints webhooks on this machine until it is stopped; or replays one delivery. */
export const listen = Command.make(
  "listen",
  {
    port: portFlag("port").pipe(Flag.withDescription("The loopback port (default: 4000)"), Flag.withDefault(4000)),
    forwardTo: textFlag("forward-to", "Pass verified webhooks on to this URL, and answer with its status"),
    replay: textFlag("replay", "Send this past delivery to --forward-to once, signed now, and stop"),
  },
  Effect.fnUntraced(function* ({ forwardTo, port, replay }) {
    if (Option.isSome(forwardTo)) yield* checkAddress(forwardTo.value)
    const given = yield* Effect.orDie(Config.option(Config.Redacted("GATEHOUSE_WEBHOOK_SECRET")))
    return yield* Option.isSome(replay)
      ? replayDelivery(replay.value, forwardTo, given)
      : stoppable(receive(port, forwardTo, given))
  }),
).pipe(
  Command.withDescription(
    "Receive webhooks on this machine, verify them with GATEHOUSE_WEBHOOK_SECRET, and print them; --json prints one document per line",
  ),
  Command.withExamples([
    { command: "gatehouse listen --port 4000" },
    { command: "gatehouse listen --forward-to http://127.0.0.1:8080/webhooks" },
    {
      command: "gatehouse listen --forward-to http://127.0.0.1:8080/webhooks --replay 01KAHBMKZ3D2X7S5QN8W4V6R9T",
    },
  ]),
)

/** Prints what arrives until it is stopped, or nobody reads it. */
const receive = Effect.fnUntraced(function* (
  port: number,
  forwardTo: Option.Option<string>,
  given: Option.Option<Redacted.Redacted<string>>,
) {
  const json = yield* Json
  const secret = Option.isSome(given) ? given.value : yield* newSecret
  const receiver = yield* makeReceiver(port, secret, yield* forwardOf(forwardTo))
  yield* Console.error(`receiving at ${receiver.url}`)
  if (Option.isNone(given)) {
    yield* Console.error(`with a new secret: export GATEHOUSE_WEBHOOK_SECRET=${Redacted.value(secret)}`)
  }
  return yield* whileRead(Effect.forever(Effect.flatMap(receiver.next, (arrival) => Console.log(line(arrival, json)))))
}, Effect.scoped)

/** The headers of a delivery, which the signature needs or the receiver reads. */
const forwardedHeaders = /^(?:content-type|user-agent|x-event-type|x-webhook-signature|webhook-.*)$/

/** Deadline of a request to the receiver, as for a delivery. */
const forwardDeadline = "15 seconds"

/**
 * Posts a delivery to a URL. Returns the status; 502 and a line on standard error if there is no response. A redirect
 * is a response like any other, as it is for a delivery of the service.
 */
const post = Effect.fnUntraced(function* (url: string, headers: Readonly<Record<string, string>>, body: Uint8Array) {
  const request = HttpClientRequest.post(url).pipe(
    HttpClientRequest.bodyUint8Array(body, headers["content-type"] ?? "application/json"),
    HttpClientRequest.setHeaders(headers),
  )
  return yield* HttpClient.execute(request).pipe(
    Effect.map(({ status }) => status),
    Effect.timeout(forwardDeadline),
    Effect.catchTags({
      HttpClientError: (error) =>
        Effect.as(Console.error(`${plain(url)} does not answer (${transportFault(error)})`), 502),
      TimeoutError: () => Effect.as(Console.error(`${plain(url)} did not answer within ${forwardDeadline}`), 502),
    }),
    Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
  )
})

/** Makes what passes verified webhooks on to a URL; `undefined` without one. */
const forwardOf = Effect.fnUntraced(function* (url: Option.Option<string>) {
  if (Option.isNone(url)) return undefined
  const run = Effect.runPromiseWith(yield* Effect.context<HttpClient.HttpClient>())
  const forward: Forward = ({ body, headers }) => {
    const own = Object.entries(headers).filter(([name]) => forwardedHeaders.test(name))
    return run(post(url.value, Object.fromEntries(own.map(([name, value]) => [name, String(value)])), body))
  }
  return forward
})

/** Sends a past delivery to a URL, with the delivery's own id and a new signature. */
const replayDelivery = Effect.fnUntraced(function* (
  delivery: string,
  url: Option.Option<string>,
  secret: Option.Option<Redacted.Redacted<string>>,
) {
  if (Option.isNone(url)) return yield* usage("--replay needs --forward-to, the URL of the receiver")
  if (Option.isNone(secret)) {
    return yield* usage("--replay signs the delivery: set GATEHOUSE_WEBHOOK_SECRET to the receiver's secret")
  }
  const { event, payload } = (yield* ask((gatehouse) =>
    gatehouse.deliveries.get({ payload: { delivery_id: delivery } }),
  )).body
  const sign = yield* Signer.use((signer) => signer.prepare([secret.value])).pipe(
    Effect.provide(Layer.provide(Signer.layer, signatures)),
  )
  const timestamp = Math.floor((yield* Clock.currentTimeMillis) / 1000)
  const status = yield* post(
    url.value,
    sign({ deliveryId: delivery, event, body: payload, timestamp }),
    new TextEncoder().encode(payload),
  )
  yield* print(JSON.stringify({ delivery_id: delivery, status }), {
    out: "",
    note: `${plain(url.value)} answered with status ${status}.`,
  })
  if (status < 200 || status > 299)
    return yield* failure("The local receiver did not accept the delivery. Its status is above")
})

/** A request that arrived: a verified webhook, or why it was refused. */
type Arrival = VerifiedWebhook | { readonly refused: string }

/** A verified request, as it is passed on. */
interface ReceivedRequest {
  readonly headers: IncomingMessage["headers"]
  readonly body: Buffer
}

/** Passes a verified request on. Returns the status of the response. */
type Forward = (request: ReceivedRequest) => Promise<number>

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
  const receive = async (headers: IncomingMessage["headers"], body: Buffer, response: ServerResponse) => {
    const arrival = await verify(headers, body, Redacted.value(secret))
    Queue.offerUnsafe(arrivals, arrival)
    if ("refused" in arrival) response.writeHead(400).end(arrival.refused)
    else response.writeHead(await forward({ headers, body })).end()
  }
  const own = yield* serveLocally(port, "--port", (request, response) => {
    const chunks: Array<Buffer> = []
    let length = 0
    request.on("data", (chunk: Buffer) => {
      length += chunk.length
      if (length > maxReceivedBodyBytes) request.destroy()
      else chunks.push(chunk)
    })
    request.on("end", () => void receive(request.headers, Buffer.concat(chunks), response))
  })
  return { url: `http://127.0.0.1:${own}`, next: Queue.take(arrivals) }
})

/** Serves HTTP on a loopback port (0: a free one), which the flag sets, until the scope closes. Returns the port. */
export const serveLocally = (port: number, flag: string, onRequest: RequestListener) =>
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>, CommandFailed>((resume) => {
      const server = createServer(onRequest)
      server.once("error", ({ code }: NodeJS.ErrnoException) => {
        const message = `Cannot listen on 127.0.0.1:${port} (${code}). Choose another port with ${flag}`
        resume(failure(message))
      })
      server.listen(port, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  ).pipe(Effect.map((server) => (server.address() as AddressInfo).port))

const verify = async (headers: IncomingMessage["headers"], body: Buffer, secret: string): Promise<Arrival> => {
  try {
    return await verifyWebhook({ headers, body }, secret)
  } catch (error) {
    if (error instanceof WebhookVerificationError) return { refused: error.message }
    throw error
  }
}
