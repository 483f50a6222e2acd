import { Context, Data, DateTime, Duration, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { Cipher } from "../Cipher.ts"
import type { ClaimedDelivery, Verdict } from "./Deliveries.ts"
import { isDelivered, judge } from "./Deliveries.ts"
import type { AttemptRecord } from "./DeliveryQueue.ts"
import { delayAfter, parseRetryAfter, RetryDelays } from "./RetryPolicy.ts"
import { type Sign, Signer } from "./Signature.ts"
import type { AttemptOutcome } from "./WebhookSender.ts"
import { WebhookSender } from "./WebhookSender.ts"

class Unsigned extends Data.TaggedError("Unsigned") {}

/** For how many endpoints and jobs the prepared secrets are kept: to prepare them costs as much as the rest of an attempt. */
const maxPrepared = 1_000

const isSame = (some: ClaimedDelivery["secrets"], others: ClaimedDelivery["secrets"]) =>
  some.length === others.length &&
  some.every(({ stored, owner }, n) => stored === others[n]!.stored && owner === others[n]!.owner)

const delivered: Verdict = { _tag: "Delivered" }

const unsigned: AttemptOutcome = {
  status: null,
  failure: { kind: "secret", message: "The signing secret cannot be read; nothing was sent. Set it again." },
  body: null,
  retryAfter: null,
  duration: Duration.zero,
}

/** Makes attempts. */
export class Dispatcher extends Context.Service<
  Dispatcher,
  {
    /** Signs and sends a delivery once, and decides what becomes of it. Never fails. */
    readonly attempt: (delivery: ClaimedDelivery) => Effect.Effect<AttemptRecord>
  }
>()("gatehouse/domain/Dispatcher") {
  static readonly layer = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const cipher = yield* Cipher
      const signer = yield* Signer
      const sender = yield* WebhookSender
      const delays = yield* RetryDelays

      /** By what the current secret is encrypted for: one with other secrets is prepared anew, in its place. */
      const prepared = new LRUCache<string, { readonly secrets: ClaimedDelivery["secrets"]; readonly sign: Sign }>({
        max: maxPrepared,
      })
      const preparedFor = ({ secrets }: ClaimedDelivery) => {
        const known = prepared.get(secrets[0]!.owner)
        return known !== undefined && isSame(known.secrets, secrets) ? known.sign : undefined
      }
      const prepare = ({ secrets, orgId, deliveryId }: ClaimedDelivery) =>
        Effect.forEach(secrets, ({ stored, owner }) => cipher.decrypt(stored, owner)).pipe(
          // An attempt like any other: recorded, tried again, and found by who looks why nothing comes.
          Effect.catchDefect((defect) =>
            Effect.logError("A signing secret cannot be read", defect).pipe(
              Effect.annotateLogs({ orgId, deliveryId }),
              Effect.andThen(new Unsigned()),
            ),
          ),
          Effect.flatMap(signer.prepare),
          Effect.tap((sign) =>
            Effect.sync(() => {
              prepared.set(secrets[0]!.owner, { secrets, sign })
            }),
          ),
        )

      const send = ({ url, deliveryId, event, body }: ClaimedDelivery, sign: Sign, startedAt: number) =>
        sender.send({ url, headers: sign({ deliveryId, event, body, timestamp: Math.floor(startedAt / 1000) }), body })

      const settle = Effect.fnUntraced(function* (
        delivery: ClaimedDelivery,
        startedAt: DateTime.Utc,
        outcome: AttemptOutcome,
      ) {
        const now = yield* DateTime.now
        const { failingSince, failures, tries } = delivery
        const verdict = judge(
          outcome,
          yield* delayAfter(delays, tries + 1),
          parseRetryAfter(outcome.retryAfter, DateTime.toEpochMillis(now)),
          failingSince === null
            ? undefined
            : { duration: DateTime.distance(failingSince, now), failures: failures + 1 },
        )
        const nextAttemptAt =
          verdict._tag === "Retry"
            ? DateTime.add(now, { milliseconds: Math.round(Duration.toMillis(verdict.wait)) })
            : null
        return { delivery, startedAt, outcome, verdict, nextAttemptAt }
      })

      const attempt = (delivery: ClaimedDelivery) =>
        Effect.clockWith((clock): Effect.Effect<AttemptRecord> => {
          const startedAt = clock.currentTimeMillisUnsafe()
          const sign = preparedFor(delivery)
          const outcome =
            sign === undefined
              ? prepare(delivery).pipe(
                  Effect.flatMap((sign) => send(delivery, sign, startedAt)),
                  Effect.catchTag("Unsigned", () => Effect.succeed(unsigned)),
                )
              : send(delivery, sign, startedAt)
          return Effect.flatMap(outcome, (outcome) => {
            const at = DateTime.makeUnsafe(startedAt)
            // What was taken asks no schedule, which would cost a third of the attempt.
            return isDelivered(outcome)
              ? Effect.succeed({ delivery, startedAt: at, outcome, verdict: delivered, nextAttemptAt: null })
              : settle(delivery, at, outcome)
          })
        })

      return Dispatcher.of({ attempt })
    }),
  )
}
