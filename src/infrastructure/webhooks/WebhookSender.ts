import { Duration, Effect, Layer } from "effect"
import { type AttemptOutcome, WebhookSender } from "../../domain/webhooks/WebhookSender.ts"
import { type SafeResponse, SafeHttp } from "../net/SafeHttp.ts"

/** Bytes of an answer's body that are read (contract 7). */
const maxReadBytes = 64 * 1024
/** Bytes of an answer's body that are kept (contract 7). */
const maxKeptBytes = 4 * 1024

/** The kept bytes as text that PostgreSQL can store, without a character that the end cuts in two. */
const bodyText = ({ body, bytesRead }: SafeResponse) =>
  bytesRead === 0 ? "" : new TextDecoder().decode(body, { stream: bytesRead > body.length }).replaceAll("\0", "\uFFFD")

const answered = (answer: SafeResponse | undefined) => ({
  status: answer?.status ?? null,
  body: answer === undefined ? null : bodyText(answer),
  retryAfter: answer?.headers["retry-after"] ?? null,
})

/**
 * A 2xx is a success only when its body ended in time. A body that is longer than 64 KiB is not read to its end, so
 * such a 2xx is a `bad_response`. Any other status decides alone, 410 above all.
 */
const failureOf = ({ status, truncated }: SafeResponse): AttemptOutcome["failure"] =>
  truncated && status >= 200 && status < 300
    ? { kind: "bad_response", message: "The answer is longer than 64 KiB." }
    : null

export interface WebhookSenderOptions {
  /** The deadline of an attempt, from the connection to the end of the body; default 15 s (contract 7). */
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
        hostFault: http.hostFault,
        // Without a span: it would add a fifth to the CPU of an attempt, and every attempt is recorded anyway.
        send: ({ url, headers, body }) =>
          Effect.clockWith((clock) => {
            const startedAt = clock.monotonicTimeNanosUnsafe()
            const took = () => Duration.nanos(clock.monotonicTimeNanosUnsafe() - startedAt)
            return Effect.match(
              http.request({ url, method: "POST", headers, body, timeout, maxRead: maxReadBytes, keep: maxKeptBytes }),
              {
                onSuccess: (answer): AttemptOutcome => ({
                  ...answered(answer),
                  failure: failureOf(answer),
                  duration: took(),
                }),
                onFailure: ({ kind, message, partial }): AttemptOutcome => ({
                  ...answered(partial),
                  failure: { kind, message },
                  duration: took(),
                }),
              },
            )
          }),
      })
    }),
  )
