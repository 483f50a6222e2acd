import {
  type Cause,
  Clock,
  Context,
  DateTime,
  Duration,
  Effect,
  Exit,
  Latch,
  Layer,
  Option,
  Queue,
  Stream,
} from "effect"
import { SecureRandom } from "effect/crypto"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "../../domain/webhooks/Dispatcher.ts"
import type { SlotCommand, SlotEvent } from "../../domain/webhooks/slotEvents.ts"
import { step } from "../../domain/webhooks/Slots.ts"
import { type ClaimRequest, makeSlots, startClaim } from "../../domain/webhooks/slotState.ts"
import { DeletedOrgs } from "../orgs/DeletedOrgs.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"
import { makeRecorder, makeReleaser } from "./attemptRecorder.ts"

export interface DeliveryWorkerOptions {
  /** Deliveries in flight in this process: claimed and not yet recorded. */
  readonly maxInFlight: number
  /** Bytes of the bodies of deliveries in flight. */
  readonly maxBytes: number
  /** Attempts in flight of one lane. */
  readonly laneCap: number
  /** Deadline of an attempt. */
  readonly attemptTimeout: Duration.Duration
}

export const defaultOptions: DeliveryWorkerOptions = {
  maxInFlight: 2048,
  maxBytes: 64 * 1024 * 1024,
  laneCap: 10,
  attemptTimeout: Duration.seconds(15),
}

/** The options of the delivery worker of this process. */
export const DeliveryWorkerOptions = Context.Reference<DeliveryWorkerOptions>(
  "gatehouse/infrastructure/webhooks/DeliveryWorker/DeliveryWorkerOptions",
  { defaultValue: () => defaultOptions },
)

/** The lease of a claim: three times the deadline of an attempt and 5 s, so that a record can wait for an unreachable database. */
export const leaseFor = (attemptTimeout: Duration.Duration) =>
  Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))

/** Deliveries that one claim takes. */
const claimBatchSize = 512
/** The longest sleep between two claims: another replica may have left deliveries. */
const pollInterval = Duration.seconds(5)
/** The shortest sleep when due deliveries could not be claimed: another claim has locked them, or they are parked. */
const minSleep = Duration.millis(1)
/** The sleep after a claim that took nothing and did not read the whole backlog. */
const backlogSleep = Duration.millis(25)
/** The longest time after which a lane that sends in order is claimed for its retry, without a poll. */
const maxClaimDelay = Duration.minutes(1)
/** The wait after a failed claim. */
const retryDelay = Duration.seconds(1)
/** How long the stop of the worker waits for records, after the deadline of the attempts. */
const recordingGrace = Duration.seconds(5)

/** Performs the commands of the slots, and tells the slots the outcome. */
const makePerformer = Effect.fnUntraced(function* ({ maxInFlight, maxBytes, laneCap }: DeliveryWorkerOptions) {
  const dispatcher = yield* Dispatcher
  const clock = yield* Clock.Clock
  const deletedOrgs = yield* DeletedOrgs
  // Detached: the stop of the worker waits for attempts and does not interrupt them.
  const detach = Effect.runForkWith(yield* Effect.context())
  const woken = yield* Queue.sliding<void>(1)
  /** Closed while any slot is in use. */
  const idle = yield* Latch.make(true)
  const slots = makeSlots({ slots: maxInFlight, bytes: maxBytes, laneCap, claimBatchSize })
  const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const openIfIdle = Effect.suspend(() => (slots.total === 0 ? idle.open : Effect.void))

  const tell = (event: SlotEvent) => step(slots, event).forEach(perform)
  const recorder = yield* makeRecorder((records) => {
    tell({ _tag: "Recorded", records, at: nowMillis() })
    return openIfIdle
  })

  const releaser = yield* makeReleaser((deliveries) => {
    tell({ _tag: "Released", deliveries })
    return openIfIdle
  })

  const died = (delivery: ClaimedDelivery, cause: Cause.Cause<never>) =>
    Effect.logError("An attempt could not be made; its delivery is due again when the lease expires", cause).pipe(
      Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
      Effect.andThen(Effect.sync(() => tell({ _tag: "AttemptDied", delivery, at: nowMillis() }))),
    )
  const attempt = (delivery: ClaimedDelivery) => {
    // Claimed before its org was deleted: nothing is sent, and a sweep removes the delivery.
    if (deletedOrgs.has(delivery.orgId)) {
      return void detach(Effect.sync(() => tell({ _tag: "AttemptDied", delivery, at: nowMillis() })))
    }
    detach(dispatcher.attempt(delivery)).addObserver((exit) => {
      if (Exit.isFailure(exit)) return void detach(died(delivery, exit.cause))
      tell({ _tag: "AttemptEnded", record: exit.value, at: nowMillis() })
      recorder.add(exit.value)
    })
  }
  // One lane at a time, with a yield before each, so that the next claim is sent to the database first.
  const takeTurn = (lane: string) =>
    Effect.andThen(
      Effect.yieldNow,
      Effect.sync(() => tell({ _tag: "LaneTurn", lane, at: nowMillis() })),
    )
  const claimNow = Queue.offer(woken, undefined)
  const perform = (command: SlotCommand) => {
    switch (command._tag) {
      case "Attempt":
        return attempt(command.delivery)
      case "TakeTurns":
        return void detach(Effect.forEach(command.lanes, takeTurn, { discard: true }))
      case "TakeTurnAt":
        return void detach(Effect.delay(takeTurn(command.lane), Math.max(1, Math.ceil(command.at - nowMillis()))))
      case "ClaimAfter":
        // A longer wait ends within a poll interval of its time anyway.
        if (Duration.isLessThanOrEqualTo(command.wait, maxClaimDelay)) void detach(Effect.delay(claimNow, command.wait))
        return
      case "Release":
        return releaser.add(command.deliveries)
      case "Claim":
        return void Queue.offerUnsafe(woken, undefined)
    }
  }

  return { slots, tell, nowMillis, woken, idle, untilKeepingUp: recorder.untilKeepingUp }
})

/**
 * The delivery worker: claims due deliveries, makes the attempts, records them in batches, and claims again. The backlog stays
 * in the database. When it stops, it claims no more, and finishes and records the attempts in flight.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const options = yield* DeliveryWorkerOptions
    const { attemptTimeout } = options
    const { idle, nowMillis, slots, tell, untilKeepingUp, woken } = yield* makePerformer(options)
    const wokenWithin = (time: Duration.Duration) => Effect.timeoutOption(Queue.take(woken), time)

    const claim = Effect.fnUntraced(function* (request: ClaimRequest) {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const claim = { ...request, claimId: yield* random.ulid, now, leaseUntil }
      const startedAt = nowMillis()
      const claimed = yield* queue.claim(claim)
      if (claimed.deliveries.length > 0) yield* idle.close
      tell({ _tag: "Claimed", claim, claimed, startedAt, at: nowMillis() })
      return { count: claimed.deliveries.length, more: claimed.more, pacedUntil: claimed.pacedUntil }
      // An interrupted claim would leave its deliveries until their leases expire.
    }, Effect.uninterruptible)

    const work = Effect.gen(function* () {
      yield* untilKeepingUp
      const request = startClaim(slots)
      if (request === undefined) return yield* wokenWithin(pollInterval)
      const { count, more, pacedUntil } = yield* claim(request)
      if (count === request.limit || (more && count > 0) || Option.isSome(yield* Queue.poll(woken))) return
      if (more) return yield* wokenWithin(backlogSleep)
      const dueAt = yield* queue.nextDueAt
      const now = yield* DateTime.now
      const untilDue = [dueAt, pacedUntil]
        .filter((time) => time !== null)
        .map((time) => DateTime.distance(now, time))
        .reduce(Duration.min, pollInterval)
      yield* wokenWithin(Duration.clamp(untilDue, { minimum: minSleep, maximum: pollInterval }))
    }).pipe(
      Effect.catch((error) =>
        Effect.logWarning(`No deliveries can be claimed: ${error.error}`).pipe(Effect.delay(retryDelay)),
      ),
      Effect.catchDefect((fault) =>
        Effect.logError("No deliveries can be claimed", fault).pipe(Effect.delay(retryDelay)),
      ),
    )

    const stop = Effect.andThen(
      Effect.sync(() => tell({ _tag: "Stopping" })),
      idle.await,
    )
    // Finalizers run in reverse order, so the recorder, which was started first, stops after the attempts.
    yield* Effect.addFinalizer(() =>
      Effect.timeoutOrElse(stop, {
        duration: Duration.sum(attemptTimeout, recordingGrace),
        orElse: () =>
          Effect.logWarning(
            `${slots.total} attempts are not recorded; their deliveries are due again when the leases expire`,
          ),
      }),
    )
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => Queue.offer(woken, undefined)))
  }),
)
