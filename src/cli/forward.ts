import { Clock, Console, Effect, Layer, Option, Redacted } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { Signer } from "../domain/webhooks/Signature.ts"
import * as Signatures from "../infrastructure/crypto/Signatures.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { ask } from "./call.ts"
import { CommandFailed, usage } from "./CommandFailed.ts"
import { plain, print } from "./output.ts"
import type { Forward } from "./receiver.ts"

/** The headers of a delivery, which the signature needs or the receiver reads. */
const forwardedHeaders = /^(?:content-type|user-agent|x-event-type|x-webhook-signature|webhook-.*)$/

/** Deadline of a request to the receiver, as for a delivery. */
const forwardDeadline = "15 seconds"

/** Posts a delivery to a URL. Returns the status; 502 and a line on standard error if there is no answer. */
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
  )
})

/** Makes what passes verified webhooks on to a URL; `undefined` without one. */
export const forwardOf = Effect.fnUntraced(function* (url: Option.Option<string>) {
  if (Option.isNone(url)) return undefined
  const run = Effect.runPromiseWith(yield* Effect.context<HttpClient.HttpClient>())
  const forward: Forward = ({ body, headers }) => {
    const own = Object.entries(headers).filter(([name]) => forwardedHeaders.test(name))
    return run(post(url.value, Object.fromEntries(own.map(([name, value]) => [name, String(value)])), body))
  }
  return forward
})

/** Sends a past delivery to a URL, with the delivery's own id and a new signature. */
export const replayDelivery = Effect.fnUntraced(function* (
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
  )).answer
  const sign = yield* Signer.use((signer) => signer.prepare([secret.value])).pipe(
    Effect.provide(Layer.provide(Signer.layer, Signatures.layer)),
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
    return yield* new CommandFailed({ message: "The local receiver did not accept the delivery. Its status is above" })
})
