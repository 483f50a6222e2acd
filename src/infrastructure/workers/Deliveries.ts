import {
  Cause,
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
  Schedule,
  Semaphore,
  Stream,
} from "effect"
import { SecureRandom } from "effect/crypto"
import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { AttemptRecord } from "../../domain/DeliveryQueue.ts"
import { DeliveryQueue, Dispatcher } from "../../domain/DeliveryQueue.ts"
import { Wakeups } from "../../domain/Wakeups.ts"
import { makeInHand } from "./inHand.ts"

export interface DeliveryWorkerOptions {
  /** Deliveries that this process has claimed and not yet recorded. */
  readonly maxInFlight: number
  /** Attempts in flight to one receiver. */
  readonly laneCap: number
  /** The longest that an attempt takes. */
  readonly attemptTimeout: Duration.Duration
}

export const defaultOptions: DeliveryWorkerOptions = {
  maxInFlight: 2048,
  laneCap: 10,
  attemptTimeout: Duration.seconds(15),
}

/** How the delivery worker goes about it. */
export const DeliveryWorkerOptions = Context.Reference<DeliveryWorkerOptions>(
  "gatehouse/infrastructure/workers/Deliveries/DeliveryWorkerOptions",
  { defaultValue: () => defaultOptions },
)

/** How long a claim holds: an attempt, and twice as long and some more for a database that is away when it is recorded. */
export const leaseFor = (attemptTimeout: Duration.Duration) =>
  Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))

/** The most that one claim or one record has in it. */
const batch = 512
/** How many records are under way at most: one is made ready while another is the database's. */
const recorders = 2
/** How long the worker waits at most before it looks again: for what another replica left behind. */
const patience = Duration.seconds(5)
/** How long it waits at least, when what is due could not be claimed: another claim has it locked, or it was parked. */
const breath = Duration.millis(1)
/** How long it waits before it asks a database again that did not do what it was asked. */
const pause = Duration.seconds(1)
/** How long the end of the worker waits for the records, after the attempts had their time. */
const recordingTime = Duration.seconds(5)

/**
 * The delivery worker: claims what is due, makes the attempts, records them in batches, and claims again. Backlog stays
 * in the database. At its end nothing more is claimed, and the attempts in flight are finished and recorded.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const dispatcher = yield* Dispatcher
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const { maxInFlight, laneCap, attemptTimeout } = yield* DeliveryWorkerOptions
    const clock = yield* Clock.Clock
    // Detached: the end of the worker waits for attempts, it does not interrupt them.
    const detach = Effect.runForkWith(yield* Effect.context())
    const finished = yield* Queue.unbounded<AttemptRecord>()
    /** Closed while attempts that were made cannot be recorded: they would be claimed, and made, again. */
    const recording = yield* Latch.make(true)
    const turns = yield* Semaphore.make(recorders)
    /** Closed while there is anything in hand. */
    const idle = yield* Latch.make(true)
    const woken = yield* Queue.sliding<void>(1)
    const wake = Queue.offer(woken, undefined)
    const wokenWithin = (time: Duration.Duration) => Effect.timeoutOption(Queue.take(woken), time)

    /** Records under way. */
    let writing = 0

    const died = (delivery: ClaimedDelivery, cause: Cause.Cause<never>) =>
      Effect.logError("An attempt could not be made; it is made again when its lease has run out", cause).pipe(
        Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
        Effect.andThen(Effect.sync(() => inHand.died(delivery))),
        Effect.andThen(wake),
      )
    const inHand = makeInHand({
      max: maxInFlight,
      laneCap,
      now: () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6,
      begin: (delivery) => {
        detach(dispatcher.attempt(delivery)).addObserver((exit) => {
          if (Exit.isFailure(exit)) return void detach(died(delivery, exit.cause))
          inHand.ended(exit.value)
          Queue.offerUnsafe(finished, exit.value)
        })
      },
      giveBack: (deliveries) => {
        const release = Effect.flatMap(DateTime.now, (now) => queue.release(deliveries, now)).pipe(
          Effect.catchCause((cause) =>
            Effect.logWarning("Deliveries were not given back; they are due when their lease has run out", cause),
          ),
          Effect.andThen(Effect.sync(() => inHand.removed(deliveries))),
          Effect.andThen(settled),
        )
        detach(release)
      },
      onLow: () => Queue.offerUnsafe(woken, undefined),
    })
    const settled = Effect.suspend(() => (inHand.total() === 0 ? idle.open : Effect.void))

    /** Writes attempts down, however long the database is away. */
    const write = (records: ReadonlyArray<AttemptRecord>): Effect.Effect<void> =>
      Effect.flatMap(DateTime.now, (now) => queue.record(records, now)).pipe(
        Effect.tapError((error) =>
          Effect.andThen(Effect.logWarning(`Attempts are not recorded yet: ${error.error}`), recording.close),
        ),
        Effect.retry(Schedule.spaced(pause)),
        Effect.orDie,
        // One that cannot be written, or a deadlock, is not to take the others with it.
        Effect.catchDefect((fault) =>
          records.length > 1
            ? Effect.forEach(records, (record) => write([record]), { discard: true })
            : Effect.logError("An attempt could not be recorded; it is made again when its lease has run out", fault),
        ),
      )

    const record = Effect.gen(function* () {
      yield* turns.take(1)
      const records = yield* Queue.takeBetween(finished, 1, batch)
      // A failure is written alone: what an endpoint did last is to be what is written last of it.
      const turn = records.every(({ verdict }) => verdict._tag === "Delivered") ? 1 : recorders
      yield* turns.take(turn - 1)
      writing++
      const recorded = Effect.gen(function* () {
        yield* write(records)
        writing--
        const mayBeMore = inHand.recorded(records)
        yield* settled
        yield* turns.release(turn)
        if (writing === 0 && (yield* Queue.size(finished)) === 0) yield* recording.open
        if (mayBeMore) yield* wake
      })
      yield* Effect.forkChild(recorded)
    })

    const begin = Effect.fnUntraced(function* (limit: number) {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const claimId = yield* random.ulid
      const claim = { claimId, now, leaseUntil, limit, ...inHand.lanes() }
      const claimed = yield* queue.claim(claim)
      if (claimed.length > 0) yield* idle.close
      const lanes = inHand.add(claimed, claim)
      // A lane at a time, and not before the next claim can be sent: the database is busy with that meanwhile.
      const beginLane = (lane: string) =>
        Effect.andThen(
          Effect.yieldNow,
          Effect.sync(() => inHand.begin(lane)),
        )
      detach(Effect.forEach(lanes, beginLane, { discard: true }))
      return claimed.length
      // What was claimed is begun, or it would wait for its lease to run out.
    }, Effect.uninterruptible)

    const work = Effect.gen(function* () {
      yield* recording.await
      const limit = Math.min(batch, inHand.appetite())
      if (limit <= 0) return yield* wokenWithin(patience)
      if ((yield* begin(limit)) === limit || Option.isSome(yield* Queue.poll(woken))) return
      const dueAt = yield* queue.nextDueAt
      const untilDue = dueAt === null ? patience : DateTime.distance(yield* DateTime.now, dueAt)
      yield* wokenWithin(Duration.clamp(untilDue, { minimum: breath, maximum: patience }))
    }).pipe(
      Effect.catch((error) =>
        Effect.logWarning(`No deliveries can be claimed: ${error.error}`).pipe(Effect.delay(pause)),
      ),
      Effect.catchDefect((fault) => Effect.logError("No deliveries can be claimed", fault).pipe(Effect.delay(pause))),
    )

    // Ended in the opposite order: no more claims, then the attempts, then their records.
    yield* Effect.forkScoped(Effect.forever(record))
    yield* Effect.addFinalizer(() =>
      Effect.timeoutOrElse(Effect.andThen(Effect.sync(inHand.clear), idle.await), {
        duration: Duration.sum(attemptTimeout, recordingTime),
        orElse: () =>
          Effect.logWarning(`${inHand.total()} attempts are not recorded; they are made again when their leases end`),
      }),
    )
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => wake))
  }),
)
