import { Clock, Context, Data, DateTime, Duration, Effect, Layer } from "effect"
import { LRUCache } from "lru-cache"
import { Cipher } from "../Cipher.ts"
import type { AttemptRecord, ClaimedDelivery, StoredSecret } from "./DeliveryQueue.ts"
import { batchBody, batchType } from "./Event.ts"
import {
  decideRetry,
  delayAfter,
  isDelivered,
  parseRetryAfter,
  type RetryDecision,
  RetryDelays,
} from "./RetryDecision.ts"
import { prepareSign, Signer, type Signing } from "./Signatures.ts"
import { type AttemptOutcome, WebhookSender } from "./WebhookSender.ts"

/** A secret of the receiver cannot be decrypted. */
class SecretUnreadable extends Data.TaggedError("SecretUnreadable") {}

/**
 * The endpoints and jobs whose prepared secrets stay in memory. To prepare one costs as much as the rest of an attempt.
 */
const maxPreparedSecrets = 1_000

/** All that is decrypted for a delivery. */
const secretsOf = ({ auth, headers, secrets, signingKeys }: ClaimedDelivery) =>
  headers === null && auth === null && signingKeys.length === 0
    ? secrets
    : [...secrets, ...signingKeys, ...(headers ? [headers] : []), ...(auth ? [auth] : [])]

const areSame = (some: ReadonlyArray<StoredSecret>, others: ReadonlyArray<StoredSecret>) =>
  some.length === others.length &&
  some.every(({ stored, owner }, n) => stored === others[n]!.stored && owner === others[n]!.owner)

const delivered: RetryDecision = { _tag: "Delivered" }

const notSent: AttemptOutcome = {
  status: null,
  failure: {
    kind: "secret",
    message:
      "A secret of the receiver (signing secret, headers, auth or signing key) cannot be read; nothing was sent. " +
      "Ask the administrator: ENCRYPTION_KEY may be wrong.",
  },
  body: null,
  retryAfter: null,
  duration: Duration.zero,
}

/** Prepares the secrets of deliveries for signing, and remembers them. */
const makePreparer = Effect.gen(function* () {
  const cipher = yield* Cipher
  const signer = yield* Signer
  // By the owner of the current secret, so that changed secrets replace the old ones.
  const prepared = new LRUCache<string, { readonly secrets: ReadonlyArray<StoredSecret>; readonly signing: Signing }>({
    max: maxPreparedSecrets,
  })

  const find = (delivery: ClaimedDelivery) => {
    const known = prepared.get(delivery.secrets[0]!.owner)
    return known !== undefined && areSame(known.secrets, secretsOf(delivery)) ? known.signing : undefined
  }

  const prepare = (delivery: ClaimedDelivery) =>
    prepareSign(cipher, signer, delivery).pipe(
      // The attempt is recorded and retried like any other, so that the delivery log shows why nothing arrives.
      Effect.catchDefect((defect) =>
        Effect.logError("A secret of a receiver cannot be read", defect).pipe(
          Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
          Effect.andThen(new SecretUnreadable()),
        ),
      ),
      Effect.tap((signing) =>
        Effect.sync(() => void prepared.set(delivery.secrets[0]!.owner, { secrets: secretsOf(delivery), signing })),
      ),
    )

  return { find, prepare }
})

/** Decides about a delivery that was not delivered, and when its next attempt is. */
const settle = Effect.fnUntraced(function* (
  delays: typeof RetryDelays.Service,
  delivery: ClaimedDelivery,
  startedAt: DateTime.Utc,
  outcome: AttemptOutcome,
) {
  const now = yield* DateTime.now
  const { attemptsSinceResend, endpointId, failingSince, failures } = delivery
  const wait = yield* delayAfter(
    delivery.retryDelays?.map((seconds) => Duration.seconds(seconds)) ?? delays,
    attemptsSinceResend + 1,
  )
  const decision = decideRetry(
    outcome,
    wait,
    parseRetryAfter(outcome.retryAfter, DateTime.toEpochMillis(now)),
    failingSince === null ? undefined : { duration: DateTime.distance(failingSince, now), failures: failures + 1 },
    endpointId === null,
  )
  const untilNext = decision._tag === "Retry" ? decision.wait : decision._tag === "Deactivate" ? wait : undefined
  const nextAttemptAt =
    untilNext === undefined ? null : DateTime.add(now, { milliseconds: Math.round(Duration.toMillis(untilNext)) })
  return { delivery, startedAt, outcome, decision, nextAttemptAt }
})

/** Makes the attempts of deliveries. */
export class Dispatcher extends Context.Service<Dispatcher>()("gatehouse/domain/Dispatcher", {
  make: Effect.gen(function* () {
    const sender = yield* WebhookSender
    const delays = yield* RetryDelays
    const secrets = yield* makePreparer

    const send = (delivery: ClaimedDelivery, { auth, sign }: Signing, startedAt: number) => {
      const { url, orgId: owner, deliveryId, event, body, headerNames } = delivery
      const timestamp = Math.floor(startedAt / 1000)
      const headers = sign({ deliveryId, event, body, timestamp, headerNames })
      return sender.send({ url, owner, headers, body, auth })
    }

    const signAndSend = (delivery: ClaimedDelivery, startedAt: number) => {
      const signing = secrets.find(delivery)
      return signing === undefined
        ? secrets.prepare(delivery).pipe(
            Effect.flatMap((made) => send(delivery, made, startedAt)),
            Effect.catchTag("SecretUnreadable", () => Effect.succeed(notSent)),
          )
        : send(delivery, signing, startedAt)
    }

    const recordOf = (delivery: ClaimedDelivery, startedAt: number, outcome: AttemptOutcome) => {
      const at = DateTime.makeUnsafe(startedAt)
      // A success skips `settle`, whose schedule costs a third of an attempt.
      return isDelivered(outcome)
        ? Effect.succeed({ delivery, startedAt: at, outcome, decision: delivered, nextAttemptAt: null })
        : settle(delays, delivery, at, outcome)
    }

    return {
      /** Signs and sends a delivery once, and decides what follows. Never fails. */
      attempt: (delivery: ClaimedDelivery) =>
        Effect.clockWith((clock): Effect.Effect<AttemptRecord> => {
          const startedAt = clock.currentTimeMillisUnsafe()
          return Effect.flatMap(signAndSend(delivery, startedAt), (outcome) => recordOf(delivery, startedAt, outcome))
        }),

      /**
       * Sends deliveries of one endpoint in one request. Each gets the outcome as its own. Never fails.
       *
       * @param requestId new for each request: a receiver that ignores an id which it has seen would lose other events
       */
      attemptTogether: Effect.fnUntraced(function* (requestId: string, deliveries: ReadonlyArray<ClaimedDelivery>) {
        const body = batchBody(deliveries.map((one) => one.body))
        const request = { ...deliveries[0]!, deliveryId: requestId, event: batchType, body }
        const startedAt = yield* Clock.currentTimeMillis
        const outcome = yield* signAndSend(request, startedAt)
        return yield* Effect.forEach(deliveries, (delivery) => recordOf(delivery, startedAt, outcome))
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
