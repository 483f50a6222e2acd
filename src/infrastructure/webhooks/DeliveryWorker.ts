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
import { type SlotCommand, type SlotEvent, step } from "../../domain/webhooks/Slots.ts"
import { type ClaimRequest, makeSlots, startClaim } from "../../domain/webhooks/slotState.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"
import { makeRecorder, releaseClaims } from "./attemptRecorder.ts"

export interface DeliveryWorkerOptions {
  /** Deliveries that this process has claimed and not yet recorded. */
  readonly maxInFlight: number
  /** Bytes of their bodies. */
  readonly maxBytes: number
  /** Attempts in flight to one receiver. */
  readonly laneCap: number
  /** The longest that an attempt takes. */
  readonly attemptTimeout: Duration.Duration
}

export const defaultOptions: DeliveryWorkerOptions = {
  maxInFlight: 2048,
  maxBytes: 64 * 1024 * 1024,
  laneCap: 10,
  attemptTimeout: Duration.seconds(15),
}

/** Limits of the delivery worker. */
export const DeliveryWorkerOptions = Context.Reference<DeliveryWorkerOptions>(
  "gatehouse/infrastructure/webhooks/DeliveryWorker/DeliveryWorkerOptions",
  { defaultValue: () => defaultOptions },
)

/** How long a claim holds: an attempt, and twice as long and some more for a database that is away when it is recorded. */
export const leaseFor = (attemptTimeout: Duration.Duration) =>
  Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))

/** The most deliveries of one claim. */
const claimBatchSize = 512
/** How often the worker claims at least: for what another replica left behind. */
const pollInterval = Duration.seconds(5)
/** How long it sleeps at least when it could not claim what is due: another claim has locked it, or it is parked. */
const minSleep = Duration.millis(1)
/** How long it sleeps when a claim took nothing and did not look at the whole backlog. */
const backlogSleep = Duration.millis(25)
/** How long it waits before it asks a database again that did not answer. */
const retryDelay = Duration.seconds(1)
/** How long the end of the worker waits for the records, after the attempts had their time. */
const recordingGrace = Duration.seconds(5)

/** Makes the attempts that the slots order, and reports what becomes of them to the slots. */
const makePerformer = Effect.fnUntraced(function* ({ maxInFlight, maxBytes, laneCap }: DeliveryWorkerOptions) {
  const queue = yield* DeliveryQueue
  const dispatcher = yield* Dispatcher
  const clock = yield* Clock.Clock
  // Detached: the end of the worker waits for attempts, it does not interrupt them.
  const detach = Effect.runForkWith(yield* Effect.context())
  const woken = yield* Queue.sliding<void>(1)
  /** Closed while any slot is in use. */
  const idle = yield* Latch.make(true)
  const slots = makeSlots({ slots: maxInFlight, bytes: maxBytes, laneCap, claimBatchSize })
  const at = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const openIfIdle = Effect.suspend(() => (slots.total === 0 ? idle.open : Effect.void))

  const tell = (event: SlotEvent) => step(slots, event).forEach(perform)
  const recorder = yield* makeRecorder((records) => {
    tell({ _tag: "Recorded", records, at: at() })
    return openIfIdle
  })

  const died = (delivery: ClaimedDelivery, cause: Cause.Cause<never>) =>
    Effect.logError("An attempt could not be made; it is made again when its lease has run out", cause).pipe(
      Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
      Effect.andThen(Effect.sync(() => tell({ _tag: "AttemptDied", delivery, at: at() }))),
    )
  const attempt = (delivery: ClaimedDelivery) =>
    detach(dispatcher.attempt(delivery)).addObserver((exit) => {
      if (Exit.isFailure(exit)) return void detach(died(delivery, exit.cause))
      tell({ _tag: "AttemptEnded", record: exit.value, at: at() })
      recorder.add(exit.value)
    })
  /** What lanes release; no more than what is claimed. */
  const released = yield* Queue.unbounded<ClaimedDelivery>()
  // Of many lanes together: thousands that fail at one time would keep the connections of the claims busy for seconds.
  const release = Effect.gen(function* () {
    const deliveries = yield* Queue.takeBetween(released, 1, claimBatchSize)
    yield* releaseClaims(queue, deliveries)
    tell({ _tag: "Released", deliveries })
    yield* openIfIdle
  })
  // One lane at a time, each after the next claim could be sent: the database works on it meanwhile.
  const takeTurn = (lane: string) =>
    Effect.andThen(
      Effect.yieldNow,
      Effect.sync(() => tell({ _tag: "LaneTurn", lane, at: at() })),
    )
  const perform = (command: SlotCommand) => {
    switch (command._tag) {
      case "Attempt":
        return void attempt(command.delivery)
      case "TakeTurns":
        return void detach(Effect.forEach(command.lanes, takeTurn, { discard: true }))
      case "Release":
        return void Queue.offerAllUnsafe(released, command.deliveries)
      case "Claim":
        return void Queue.offerUnsafe(woken, undefined)
    }
  }

  yield* Effect.forkScoped(Effect.forever(release))
  return { slots, tell, at, woken, idle, untilKeepingUp: recorder.untilKeepingUp }
})

/**
 * The delivery worker: claims what is due, makes the attempts, records them in batches, and claims again. The backlog stays
 * in the database. At its end it claims no more, and finishes and records the attempts in flight.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const options = yield* DeliveryWorkerOptions
    const { attemptTimeout } = options
    const { at, idle, slots, tell, untilKeepingUp, woken } = yield* makePerformer(options)
    const wokenWithin = (time: Duration.Duration) => Effect.timeoutOption(Queue.take(woken), time)

    const claim = Effect.fnUntraced(function* (request: ClaimRequest) {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const claim = { ...request, claimId: yield* random.ulid, now, leaseUntil }
      const claimed = yield* queue.claim(claim)
      if (claimed.deliveries.length > 0) yield* idle.close
      tell({ _tag: "Claimed", claim, claimed, at: at() })
      return { count: claimed.deliveries.length, more: claimed.more }
      // What was claimed is attempted, or it would wait for its lease to run out.
    }, Effect.uninterruptible)

    const work = Effect.gen(function* () {
      yield* untilKeepingUp
      const request = startClaim(slots)
      if (request === undefined) return yield* wokenWithin(pollInterval)
      const { count, more } = yield* claim(request)
      if (count === request.limit || (more && count > 0) || Option.isSome(yield* Queue.poll(woken))) return
      if (more) return yield* wokenWithin(backlogSleep)
      const dueAt = yield* queue.nextDueAt
      const untilDue = dueAt === null ? pollInterval : DateTime.distance(yield* DateTime.now, dueAt)
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
    // The recorder was started first, so it ends last: first no more claims, then the attempts, then their records.
    yield* Effect.addFinalizer(() =>
      Effect.timeoutOrElse(stop, {
        duration: Duration.sum(attemptTimeout, recordingGrace),
        orElse: () =>
          Effect.logWarning(`${slots.total} attempts are not recorded; they are made again when their leases end`),
      }),
    )
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => Queue.offer(woken, undefined)))
  }),
)
