import { DateTime, Duration, Effect, Latch, Queue, Semaphore } from "effect"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"

/** Attempts that one statement records. */
const recordBatchSize = 512
/** Batches that are written at the same time: the process prepares one while the database writes the other. */
const maxConcurrentRecords = 2
/** The wait before a failed record is written again. */
const recordRetryDelay = Duration.seconds(1)
/** Tries to record one attempt while the database answers other statements. */
const maxRecordTries = 5
/** Deliveries that one statement releases. */
const releaseBatchSize = 512

/** Releases deliveries. If that fails, they are due again when their lease expires. */
const releaseClaims = (queue: DeliveryQueue["Service"], deliveries: ReadonlyArray<ClaimedDelivery>) =>
  Effect.flatMap(DateTime.now, (now) => queue.release(deliveries, now)).pipe(
    Effect.catchCause((cause) =>
      Effect.logWarning("Deliveries were not released; they are due again when their lease expires", cause),
    ),
  )

/**
 * Releases deliveries in batches until its scope closes. Calls `onReleased` for each batch. A batch has deliveries of many
 * lanes: when thousands of lanes fail together, a statement for each would keep the claims from the database for seconds.
 */
export const makeReleaser = Effect.fnUntraced(function* (
  onReleased: (deliveries: ReadonlyArray<ClaimedDelivery>) => Effect.Effect<void>,
) {
  const queue = yield* DeliveryQueue
  /** Bounded: every delivery in it is claimed. */
  const waiting = yield* Queue.unbounded<ClaimedDelivery>()
  const releaseBatch = Effect.gen(function* () {
    const deliveries = yield* Queue.takeBetween(waiting, 1, releaseBatchSize)
    yield* releaseClaims(queue, deliveries)
    yield* onReleased(deliveries)
  })
  yield* Effect.forkScoped(Effect.forever(releaseBatch))
  return { add: (deliveries: ReadonlyArray<ClaimedDelivery>) => void Queue.offerAllUnsafe(waiting, deliveries) }
})

/**
 * Writes attempts, and tries again until the database answers. Calls `onUnreachable` while it does not. When a record fails
 * although the database answers, splits it until the failing attempt is alone; drops that attempt and releases its delivery.
 */
const makeWrite = (queue: DeliveryQueue["Service"], onUnreachable: Effect.Effect<void>) => {
  /** Whether the database answers another statement. If it does, the record itself is the problem. */
  const isReachable = Effect.isSuccess(queue.nextDueAt)

  const drop = ({ delivery }: AttemptRecord, reason: unknown) =>
    Effect.logError("An attempt could not be recorded; its delivery is due again", reason).pipe(
      Effect.annotateLogs({ orgId: delivery.orgId, deliveryId: delivery.deliveryId }),
      Effect.andThen(releaseClaims(queue, [delivery])),
    )

  const write = (records: ReadonlyArray<AttemptRecord>, tries = 1): Effect.Effect<void> => {
    const halves = () => {
      const middle = Math.ceil(records.length / 2)
      return Effect.andThen(write(records.slice(0, middle)), write(records.slice(middle)))
    }
    return Effect.flatMap(DateTime.now, (now) => queue.record(records, now)).pipe(
      Effect.catch((error) =>
        Effect.flatMap(isReachable, (reachable) => {
          if (reachable && records.length > 1) return halves()
          if (reachable && tries >= maxRecordTries) return drop(records[0]!, error)
          return Effect.logWarning(`Attempts are not recorded yet: ${error.error}`).pipe(
            Effect.andThen(reachable ? Effect.void : onUnreachable),
            Effect.andThen(Effect.sleep(recordRetryDelay)),
            Effect.andThen(write(records, reachable ? tries + 1 : tries)),
          )
        }),
      ),
      // One attempt that cannot be written, or a deadlock, must not lose the others.
      Effect.catchDefect((fault) => (records.length > 1 ? halves() : drop(records[0]!, fault))),
    )
  }
  return write
}

/** Records finished attempts in batches until its scope closes. Calls `onRecorded` for each batch. */
export const makeRecorder = Effect.fnUntraced(function* (
  onRecorded: (records: ReadonlyArray<AttemptRecord>) => Effect.Effect<void>,
) {
  const finished = yield* Queue.unbounded<AttemptRecord>()
  const recorders = yield* Semaphore.make(maxConcurrentRecords)
  /** Closed while the database is unreachable: unrecorded attempts would be claimed again and sent twice. */
  const isKeepingUp = yield* Latch.make(true)
  const write = makeWrite(yield* DeliveryQueue, isKeepingUp.close)
  /** Batches in flight. */
  let writing = 0

  const recordBatch = Effect.gen(function* () {
    yield* recorders.take(1)
    const records = yield* Queue.takeBetween(finished, 1, recordBatchSize)
    // A batch with failures is written alone, so that attempts of an endpoint are recorded in their order.
    const permits = records.every(({ decision }) => decision._tag === "Delivered") ? 1 : maxConcurrentRecords
    yield* recorders.take(permits - 1)
    writing++
    const done = Effect.suspend(() => {
      writing--
      const isCaughtUp = writing === 0 && Queue.sizeUnsafe(finished) === 0
      return Effect.andThen(recorders.release(permits), isCaughtUp ? isKeepingUp.open : Effect.void)
    })
    const recorded = Effect.andThen(
      write(records),
      Effect.suspend(() => onRecorded(records)),
    ).pipe(
      Effect.catchDefect((fault) => Effect.logError("The slots of recorded attempts are not free", fault)),
      Effect.ensuring(done),
    )
    yield* Effect.forkChild(recorded)
  })
  yield* Effect.forkScoped(Effect.forever(recordBatch))

  return { add: (record: AttemptRecord) => void Queue.offerUnsafe(finished, record), untilKeepingUp: isKeepingUp.await }
})
