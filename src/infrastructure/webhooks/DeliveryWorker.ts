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
  Semaphore,
  Stream,
} from "effect"
import { SecureRandom } from "effect/crypto"
import type { ClaimedDelivery } from "../../domain/webhooks/Deliveries.ts"
import type { AttemptRecord } from "../../domain/webhooks/DeliveryQueue.ts"
import { DeliveryQueue, Dispatcher } from "../../domain/webhooks/DeliveryQueue.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"
import { makeSlots } from "./slots.ts"

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
  "gatehouse/infrastructure/workers/Deliveries/DeliveryWorkerOptions",
  { defaultValue: () => defaultOptions },
)

/** How long a claim holds: an attempt, and twice as long and some more for a database that is away when it is recorded. */
export const leaseFor = (attemptTimeout: Duration.Duration) =>
  Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))

/** The most deliveries of one claim or one record. */
const batchSize = 512
/** Records that are written at one time: one is made ready while another is the database's. */
const maxRecorders = 2
/** How long the worker sleeps at most before it claims again: for what another replica left behind. */
const pollInterval = Duration.seconds(5)
/** How long it sleeps at least, when what is due could not be claimed: another claim has it locked, or it was parked. */
const minSleep = Duration.millis(1)
/** How long it sleeps when a claim took nothing and did not look at all of the backlog. */
const backlogSleep = Duration.millis(25)
/** How long it waits before it asks a database again that did not answer. */
const retryDelay = Duration.seconds(1)
/** How often the smallest record is tried while the database answers other statements. */
const maxRecordTries = 5
/** How long the end of the worker waits for the records, after the attempts had their time. */
const recordingGrace = Duration.seconds(5)

/**
 * The delivery worker: claims what is due, makes the attempts, records them in batches, and claims again. The backlog stays
 * in the database. At its end nothing more is claimed, and the attempts in flight are finished and recorded.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const dispatcher = yield* Dispatcher
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const { maxInFlight, maxBytes, laneCap, attemptTimeout } = yield* DeliveryWorkerOptions
    const clock = yield* Clock.Clock
    // Detached: the end of the worker waits for attempts, it does not interrupt them.
    const detach = Effect.runForkWith(yield* Effect.context())
    const finished = yield* Queue.unbounded<AttemptRecord>()
    /** Closed while the database cannot be reached: attempts that are not recorded would be claimed, and made, again. */
    const recording = yield* Latch.make(true)
    const recorders = yield* Semaphore.make(maxRecorders)
    /** Closed while any slot is in use. */
    const idle = yield* Latch.make(true)
    const woken = yield* Queue.sliding<void>(1)
    const wake = Queue.offer(woken, undefined)
    const wokenWithin = (time: Duration.Duration) => Effect.timeoutOption(Queue.take(woken), time)

    /** Records that are being written. */
    let writing = 0

    const died = (delivery: ClaimedDelivery, cause: Cause.Cause<never>) =>
      Effect.logError("An attempt could not be made; it is made again when its lease has run out", cause).pipe(
        Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
        Effect.andThen(Effect.sync(() => slots.died(delivery))),
        Effect.andThen(wake),
      )
    const releaseClaims = (deliveries: ReadonlyArray<ClaimedDelivery>) =>
      Effect.flatMap(DateTime.now, (now) => queue.release(deliveries, now)).pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("Deliveries were not released; they are due when their lease has run out", cause),
        ),
      )
    const slots = makeSlots({
      max: maxInFlight,
      maxBytes,
      laneCap,
      now: () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6,
      begin: (delivery) => {
        detach(dispatcher.attempt(delivery)).addObserver((exit) => {
          if (Exit.isFailure(exit)) return void detach(died(delivery, exit.cause))
          slots.ended(exit.value)
          Queue.offerUnsafe(finished, exit.value)
        })
      },
      release: (deliveries) => {
        const release = releaseClaims(deliveries).pipe(
          Effect.andThen(Effect.sync(() => slots.removed(deliveries))),
          Effect.andThen(settled),
        )
        detach(release)
      },
      onLow: () => Queue.offerUnsafe(woken, undefined),
    })
    const settled = Effect.suspend(() => (slots.total() === 0 ? idle.open : Effect.void))

    /** Whether the database answers another statement, so that it is the record that cannot be written. */
    const isReachable = Effect.isSuccess(queue.nextDueAt)

    /** Gives up a record that cannot be written: its delivery is attempted again. */
    const setAside = (record: AttemptRecord, why: unknown) =>
      Effect.logError("An attempt could not be recorded; it is made again", why).pipe(
        Effect.annotateLogs({ orgId: record.delivery.orgId, deliveryId: record.delivery.deliveryId }),
        Effect.andThen(releaseClaims([record.delivery])),
      )

    /**
     * Records attempts, however long the database is away. A record that fails while the database answers is split, until the
     * attempt that it fails for is alone: that one is set aside, and claims go on for all others.
     */
    const write = (records: ReadonlyArray<AttemptRecord>, tries = 1): Effect.Effect<void> => {
      const halves = () => {
        const middle = Math.ceil(records.length / 2)
        return Effect.andThen(write(records.slice(0, middle)), write(records.slice(middle)))
      }
      return Effect.flatMap(DateTime.now, (now) => queue.record(records, now)).pipe(
        Effect.catch((error) =>
          Effect.flatMap(isReachable, (reachable) => {
            if (reachable && records.length > 1) return halves()
            if (reachable && tries >= maxRecordTries) return setAside(records[0]!, error)
            return Effect.logWarning(`Attempts are not recorded yet: ${error.error}`).pipe(
              Effect.andThen(reachable ? Effect.void : recording.close),
              Effect.andThen(Effect.sleep(retryDelay)),
              Effect.andThen(write(records, reachable ? tries + 1 : tries)),
            )
          }),
        ),
        // An attempt that cannot be written, or a deadlock, does not take the others with it.
        Effect.catchDefect((fault) => (records.length > 1 ? halves() : setAside(records[0]!, fault))),
      )
    }

    const record = Effect.gen(function* () {
      yield* recorders.take(1)
      const records = yield* Queue.takeBetween(finished, 1, batchSize)
      // A record with failures is written alone: what an endpoint did last is what is written last of it.
      const turns = records.every(({ verdict }) => verdict._tag === "Delivered") ? 1 : maxRecorders
      yield* recorders.take(turns - 1)
      writing++
      const recorded = Effect.gen(function* () {
        yield* write(records)
        if (slots.recorded(records)) yield* wake
        yield* settled
      }).pipe(
        Effect.catchDefect((fault) => Effect.logError("The slots of recorded attempts were not freed", fault)),
        Effect.ensuring(
          Effect.suspend(() => {
            writing--
            const isWritten = writing === 0 && Queue.sizeUnsafe(finished) === 0
            return Effect.andThen(recorders.release(turns), isWritten ? recording.open : Effect.void)
          }),
        ),
      )
      yield* Effect.forkChild(recorded)
    })

    const begin = Effect.fnUntraced(function* (limit: number) {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const claimId = yield* random.ulid
      const claim = { claimId, now, leaseUntil, limit, ...slots.shares() }
      const claimed = yield* queue.claim(claim)
      if (claimed.deliveries.length > 0) yield* idle.close
      const lanes = slots.add(claimed, claim)
      // A lane at a time, and not before the next claim can be sent: the database is busy with that meanwhile.
      const beginLane = (lane: string) =>
        Effect.andThen(
          Effect.yieldNow,
          Effect.sync(() => slots.begin(lane)),
        )
      detach(Effect.forEach(lanes, beginLane, { discard: true }))
      return { count: claimed.deliveries.length, more: claimed.more }
      // What was claimed is begun, or it would wait for its lease to run out.
    }, Effect.uninterruptible)

    const work = Effect.gen(function* () {
      yield* recording.await
      const limit = Math.min(batchSize, slots.claimable())
      if (limit <= 0) return yield* wokenWithin(pollInterval)
      const { count, more } = yield* begin(limit)
      if (count === limit || (more && count > 0) || Option.isSome(yield* Queue.poll(woken))) return
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

    // Ended in the opposite order: no more claims, then the attempts, then their records.
    yield* Effect.forkScoped(Effect.forever(record))
    yield* Effect.addFinalizer(() =>
      Effect.timeoutOrElse(Effect.andThen(Effect.sync(slots.clear), idle.await), {
        duration: Duration.sum(attemptTimeout, recordingGrace),
        orElse: () =>
          Effect.logWarning(`${slots.total()} attempts are not recorded; they are made again when their leases end`),
      }),
    )
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => wake))
  }),
)
