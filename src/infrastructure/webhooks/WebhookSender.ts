import { Duration, Effect, Layer } from "effect"
import { type AttemptOutcome, WebhookSender } from "../../domain/webhooks/WebhookSender.ts"
import { type SafeAnswer, SafeHttp } from "../net/SafeHttp.ts"

/** How much of an answer's body is read, and how much of that is kept, in bytes (contract 7). */
const maxRead = 64 * 1024
const keep = 4 * 1024

/** The kept bytes as text that PostgreSQL can keep; a character that the cut went through is left out. */
const bodyText = ({ body, bytesRead }: SafeAnswer) =>
  bytesRead === 0 ? "" : new TextDecoder().decode(body, { stream: bytesRead > body.length }).replaceAll("\0", "\uFFFD")

const seen = (answer: SafeAnswer | undefined) => ({
  status: answer?.status ?? null,
  body: answer === undefined ? null : bodyText(answer),
  retryAfter: answer?.headers["retry-after"] ?? null,
})

/**
 * An answer that is longer than is read has not ended within the time, "body included", so a 2xx of that kind does not
 * count: it is a `bad_response`. With every other status the status alone says what has to be known (410 above all).
 */
const failureOf = ({ status, truncated }: SafeAnswer): AttemptOutcome["failure"] =>
  truncated && status >= 200 && status < 300
    ? { kind: "bad_response", message: "The answer is longer than 64 KiB." }
    : null

export interface WebhookSenderOptions {
  /** What an attempt has for everything, connection and body included; default 15 s (contract 7). */
  readonly timeout?: Duration.Input
}

/** Sends webhooks with `SafeHttp`: POST, no redirects, 64 KiB of the answer read and 4 KiB kept. */
export const layer = (options: WebhookSenderOptions = {}) =>
  Layer.effect(
    WebhookSender,
    Effect.gen(function* () {
      const http = yield* SafeHttp
      const timeout = Duration.fromInputUnsafe(options.timeout ?? "15 seconds")
      return WebhookSender.of({
        // Without a span: it would cost a fifth of an attempt, and every attempt is recorded anyway.
        send: ({ url, headers, body }) =>
          Effect.clockWith((clock) => {
            const since = clock.monotonicTimeNanosUnsafe()
            const took = () => Duration.nanos(clock.monotonicTimeNanosUnsafe() - since)
            return Effect.match(http.request({ url, method: "POST", headers, body, timeout, maxRead, keep }), {
              onSuccess: (answer): AttemptOutcome => ({
                ...seen(answer),
                failure: failureOf(answer),
                duration: took(),
              }),
              onFailure: ({ kind, message, partial }): AttemptOutcome => ({
                ...seen(partial),
                failure: { kind, message },
                duration: took(),
              }),
            })
          }),
      })
    }),
  )
