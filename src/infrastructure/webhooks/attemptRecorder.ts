import { DateTime, Duration, Effect, Latch, Queue, Semaphore } from "effect"
import type { ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import { type AttemptRecord, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"

/** The most attempts of one record. */
const recordBatchSize = 512
/** Records that are written at the same time: one is prepared while the database writes the other. */
const maxRecorders = 2
/** How long a record waits before it asks a database again that did not answer. */
const recordRetryDelay = Duration.seconds(1)
/** How often a record of one attempt is tried while the database answers other statements. */
const maxRecordTries = 5

/** Releases deliveries; if that fails, they are due again when their lease ends. */
export const releaseClaims = (queue: DeliveryQueue["Service"], deliveries: ReadonlyArray<ClaimedDelivery>) =>
  Effect.flatMap(DateTime.now, (now) => queue.release(deliveries, now)).pipe(
    Effect.catchCause((cause) =>
      Effect.logWarning("Deliveries were not released; they are due when their lease has run out", cause),
    ),
  )

/**
 * Writes attempts, however long the database is away; calls `onAway` while it is. A record that fails while the database
 * answers is split until the attempt that fails is alone. That attempt is given up, and its delivery released.
 */
const makeWrite = (queue: DeliveryQueue["Service"], onAway: Effect.Effect<void>) => {
  /** Whether the database answers another statement: then the record cannot be written. */
  const isReachable = Effect.isSuccess(queue.nextDueAt)

  const giveUp = ({ delivery }: AttemptRecord, why: unknown) =>
    Effect.logError("An attempt could not be recorded; it is made again", why).pipe(
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
          if (reachable && tries >= maxRecordTries) return giveUp(records[0]!, error)
          return Effect.logWarning(`Attempts are not recorded yet: ${error.error}`).pipe(
            Effect.andThen(reachable ? Effect.void : onAway),
            Effect.andThen(Effect.sleep(recordRetryDelay)),
            Effect.andThen(write(records, reachable ? tries + 1 : tries)),
          )
        }),
      ),
      // An attempt that cannot be written, or a deadlock, does not take the others with it.
      Effect.catchDefect((fault) => (records.length > 1 ? halves() : giveUp(records[0]!, fault))),
    )
  }
  return write
}

/** Records finished attempts in batches until its scope closes. Calls `onRecorded` for each batch. */
export const makeRecorder = Effect.fnUntraced(function* (
  onRecorded: (records: ReadonlyArray<AttemptRecord>) => Effect.Effect<void>,
) {
  const finished = yield* Queue.unbounded<AttemptRecord>()
  const recorders = yield* Semaphore.make(maxRecorders)
  /** Closed while the database is away: attempts that are not recorded would be claimed, and made, again. */
  const isKeepingUp = yield* Latch.make(true)
  const write = makeWrite(yield* DeliveryQueue, isKeepingUp.close)
  /** Batches that are being written. */
  let writing = 0

  const recordBatch = Effect.gen(function* () {
    yield* recorders.take(1)
    const records = yield* Queue.takeBetween(finished, 1, recordBatchSize)
    // A batch with failures is written alone, so that an endpoint's last attempt is the last that is written of it.
    const turns = records.every(({ verdict }) => verdict._tag === "Delivered") ? 1 : maxRecorders
    yield* recorders.take(turns - 1)
    writing++
    const done = Effect.suspend(() => {
      writing--
      const isWritten = writing === 0 && Queue.sizeUnsafe(finished) === 0
      return Effect.andThen(recorders.release(turns), isWritten ? isKeepingUp.open : Effect.void)
    })
    const recorded = Effect.andThen(
      write(records),
      Effect.suspend(() => onRecorded(records)),
    ).pipe(
      Effect.catchDefect((fault) => Effect.logError("The slots of recorded attempts were not freed", fault)),
      Effect.ensuring(done),
    )
    yield* Effect.forkChild(recorded)
  })
  yield* Effect.forkScoped(Effect.forever(recordBatch))

  return { add: (record: AttemptRecord) => void Queue.offerUnsafe(finished, record), untilKeepingUp: isKeepingUp.await }
})
