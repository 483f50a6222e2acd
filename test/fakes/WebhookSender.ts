import { Context, DateTime, Duration, Effect, Layer } from "effect"
import type { AttemptOutcome, WebhookRequest } from "#src/domain/webhooks/WebhookSender.ts"
import { WebhookSender } from "#src/domain/webhooks/WebhookSender.ts"

export const answer = (status: number, overrides: Partial<AttemptOutcome> = {}): AttemptOutcome => ({
  status,
  failure: null,
  body: "",
  retryAfter: null,
  duration: Duration.millis(12),
  ...overrides,
})

export const failure = (
  kind: NonNullable<AttemptOutcome["failure"]>["kind"],
  message: string = kind,
): AttemptOutcome => ({
  ...answer(0),
  status: null,
  failure: { kind, message },
  body: null,
})

/** The sent requests, and the next answers. The last answer repeats forever. */
export class Receiver extends Context.Service<
  Receiver,
  {
    readonly requests: Array<WebhookRequest>
    answers: Array<Effect.Effect<AttemptOutcome>>
    /** Why nothing can be sent to a host, by its name. */
    readonly hostFaults: Map<string, string>
  }
>()("gatehouse/test/Receiver") {
  static readonly layer = Layer.sync(Receiver, () => ({
    requests: [],
    answers: [Effect.succeed(answer(200))],
    hostFaults: new Map(),
  }))
}

/** A sender without a network. */
export const layer = Layer.effect(
  WebhookSender,
  Effect.map(Receiver, (receiver) => ({
    hostFault: (url) => Effect.succeed(receiver.hostFaults.get(new URL(url).hostname) ?? null),
    checkIdentity: () => Effect.succeed(DateTime.makeUnsafe("2027-01-01T00:00:00Z")),
    send: (request) =>
      Effect.suspend(() => {
        receiver.requests.push(request)
        return receiver.answers.length > 1 ? receiver.answers.shift()! : receiver.answers[0]!
      }),
  })),
).pipe(Layer.provideMerge(Receiver.layer))
