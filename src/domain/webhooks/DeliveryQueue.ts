import { Context, Data, DateTime, Duration, Effect, Layer } from "effect"
import { Cipher } from "../Cipher.ts"
import type { ClaimedDelivery, Verdict } from "./Deliveries.ts"
import { isDelivered, judge } from "./Deliveries.ts"
import type { Unavailable } from "../Errors.ts"
import { delayAfter, parseRetryAfter, RetryPolicy } from "./RetryPolicy.ts"
import { type Sign, Signer } from "./Signature.ts"
import type { AttemptOutcome } from "./WebhookSender.ts"
import { WebhookSender } from "./WebhookSender.ts"

/** An attempt that was made, to be recorded. */
export interface AttemptRecord {
  readonly delivery: ClaimedDelivery
  readonly startedAt: DateTime.Utc
  readonly outcome: AttemptOutcome
  readonly verdict: Verdict
  /** When it is tried again; `null` when it is not. */
  readonly nextAttemptAt: DateTime.Utc | null
}

/** What a worker asks for. */
export interface Claim {
  readonly claimId: string
  readonly now: DateTime.Utc
  /** Until when the deliveries are this claim's; longer than any attempt takes. */
  readonly leaseUntil: DateTime.Utc
  readonly limit: number
  /** How many deliveries a lane may have here that has none; 1 for a lane whose last attempt failed. */
  readonly laneCap: number
  /** The lanes that have some here, by `slotOf`. */
  readonly lanes: ReadonlyMap<string, LaneShare>
  /** Slots and bytes that are free here. */
  readonly free: OrgShare
  /**
   * What stays free when an org takes more, at least, as a multiple of what it then has. So an org alone comes to
   * 1 ÷ (1 + reserve) of all, and to an equal share with others, and there is always room for the next.
   */
  readonly reserve: number
  /** An org that has so much here takes of its backlog when it has room for as much again: a small claim costs as a large. */
  readonly minBacklog: number
  /** What the orgs have here that have some. */
  readonly orgs: ReadonlyMap<string, OrgShare>
}

/** What a lane has here of what was claimed. */
export interface LaneShare {
  readonly count: number
  /** How many it may have. */
  readonly cap: number
  /** Whether its last attempt succeeded: then it may have them also when its org runs short of slots. */
  readonly works: boolean
}

/** What an org has here of what was claimed. */
export interface OrgShare {
  readonly count: number
  /** Bytes of the bodies. */
  readonly bytes: number
}

/** What a claim took. */
export interface Claimed {
  readonly deliveries: ReadonlyArray<ClaimedDelivery>
  /** Whether some of the backlog was not looked at: there may be more to claim at once. */
  readonly more: boolean
  /** Whether an org had no share left for something that is due: there may be more to claim when it has. */
  readonly short: boolean
}

/** What shares a limit on attempts in flight: an endpoint, whatever its lane, or a lane of callbacks. */
export const slotOf = ({ endpointId, lane }: Pick<ClaimedDelivery, "endpointId" | "lane">) => endpointId ?? lane

/** The outbox: where pending deliveries are claimed, and where attempts are recorded. */
export class DeliveryQueue extends Context.Service<
  DeliveryQueue,
  {
    /**
     * Claims due deliveries: of a lane the longest due first and at most as many as it has room for, and of an org no more
     * than its share, of which a quarter is for lanes that have nothing here and for those that work. Orgs with a backlog take
     * turns, and the lanes of each.
     */
    readonly claim: (claim: Claim) => Effect.Effect<Claimed, Unavailable>
    /**
     * Records attempts and moves their deliveries on, all or nothing; passes over those whose claim is no longer
     * theirs. `Deactivate` deactivates the endpoint and cancels its other pending deliveries.
     */
    readonly record: (records: ReadonlyArray<AttemptRecord>, now: DateTime.Utc) => Effect.Effect<void, Unavailable>
    /**
     * Releases deliveries that were claimed and not attempted, to wait behind the others of their lane; passes over
     * those whose claim is no longer theirs.
     */
    readonly release: (
      deliveries: ReadonlyArray<ClaimedDelivery>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /** When the next delivery is due, those left out that wait for room in their lane; `null` when there is none. */
    readonly nextDueAt: Effect.Effect<DateTime.Utc | null, Unavailable>
  }
>()("gatehouse/domain/DeliveryQueue") {}

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
>()("gatehouse/domain/DeliveryQueue/Dispatcher") {
  static readonly layer = Layer.effect(
    Dispatcher,
    Effect.gen(function* () {
      const cipher = yield* Cipher
      const signer = yield* Signer
      const sender = yield* WebhookSender
      const policy = yield* RetryPolicy

      /** By what the current secret is encrypted for: one with other secrets is prepared anew, in its place. */
      const prepared = new Map<string, { readonly secrets: ClaimedDelivery["secrets"]; readonly sign: Sign }>()
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
              if (prepared.size > maxPrepared) prepared.delete(prepared.keys().next().value!)
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
          yield* delayAfter(policy, tries + 1),
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
