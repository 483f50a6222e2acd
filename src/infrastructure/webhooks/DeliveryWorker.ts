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
  Semaphore,
  Stream,
} from "effect"
import { SecureRandom } from "effect/crypto"
import { type AttemptRecord, type ClaimedDelivery, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "../../domain/webhooks/Dispatcher.ts"
import {
  type ClaimRequest,
  makeSlots,
  type SlotCommand,
  type SlotEvent,
  startClaim,
  step,
} from "../../domain/webhooks/Slots.ts"
import { Wakeups } from "../../domain/Wakeups.ts"
import { DeletedOrgs } from "../orgs/DeletedOrgs.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"

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

/**
 * The lease of a claim: three times the deadline of an attempt and 5 s, so that a record can wait for an unreachable
 * database.
 */
export const leaseFor = (attemptTimeout: Duration.Duration) =>
  Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))

/** Deliveries that one claim takes. */
const claimBatchSize = 512
/** The longest sleep between two claims: another replica may have left deliveries. */
const pollInterval = Duration.seconds(5)
/**
 * The shortest sleep when due deliveries could not be claimed: another claim has locked them, or they are backlogged.
 */
const minSleep = Duration.millis(1)
/** The sleep after a claim that took nothing and did not read the whole backlog. */
const backlogSleep = Duration.millis(25)
/** The longest time after which a lane that sends in order is claimed for its retry, without a poll. */
const maxClaimDelay = Duration.minutes(1)
/** The wait after a failed claim. */
const retryDelay = Duration.seconds(1)
/** How long the stop of the worker waits for records, after the deadline of the attempts. */
const recordingGrace = Duration.seconds(5)

/** The bytes of a request with several deliveries, unless one alone has more. */
const maxRequestBytes = 1024 * 1024

/** Deliveries of a lane in as many requests as their endpoint's settings and `maxRequestBytes` need. */
const inRequests = (deliveries: ReadonlyArray<ClaimedDelivery>) => {
  const requests: Array<Array<ClaimedDelivery>> = []
  let bytes = 0
  for (const delivery of deliveries) {
    // With the comma or bracket before it.
    const size = delivery.bytes + 1
    bytes += size
    const last = requests.at(-1)
    if (last !== undefined && last.length < delivery.batchMax! && bytes < maxRequestBytes) last.push(delivery)
    else {
      requests.push([delivery])
      bytes = size
    }
  }
  return requests
}

/** Performs the commands of the slots, and tells the slots the outcome. */
const makePerformer = Effect.fnUntraced(function* ({ maxInFlight, maxBytes, laneCap }: DeliveryWorkerOptions) {
  const dispatcher = yield* Dispatcher
  const random = yield* SecureRandom.SecureRandom
  const clock = yield* Clock.Clock
  const deletedOrgs = yield* DeletedOrgs
  // Detached: the stop of the worker waits for attempts and does not interrupt them.
  const detach = Effect.runForkWith(yield* Effect.context())
  const woken = yield* Queue.sliding<void>(1)
  /** Closed while any slot is in use. */
  const idle = yield* Latch.make(true)
  const slots = makeSlots({ slots: maxInFlight, bytes: maxBytes, laneCap, claimBatchSize })
  const nowMillis = () => monotonicMillisOf(clock)
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
  const ended = (record: AttemptRecord) => {
    tell({ _tag: "AttemptEnded", record, at: nowMillis() })
    recorder.add(record)
  }
  /** The deliveries that wait for others of their lane until the next turn of the fibers. */
  const together = new Map<string, Array<ClaimedDelivery>>()
  const sendTogether = Effect.andThen(
    Effect.yieldNow,
    Effect.sync(() => {
      const requests = [...together.values()].flatMap(inRequests)
      together.clear()
      for (const deliveries of requests) {
        const sent = Effect.flatMap(random.ulid, (id) => dispatcher.attemptTogether(id, deliveries))
        detach(sent).addObserver((exit) => {
          if (Exit.isSuccess(exit)) exit.value.forEach(ended)
          else for (const delivery of deliveries) detach(died(delivery, exit.cause))
        })
      }
    }),
  )
  const attempt = (delivery: ClaimedDelivery) => {
    // Claimed before its org was deleted: nothing is sent, and a sweep removes the delivery.
    if (deletedOrgs.has(delivery.orgId)) {
      return void detach(Effect.sync(() => tell({ _tag: "AttemptDied", delivery, at: nowMillis() })))
    }
    if (delivery.batchMax !== null) {
      if (together.size === 0) detach(sendTogether)
      const waiting = together.get(delivery.lane)
      return waiting === undefined ? void together.set(delivery.lane, [delivery]) : void waiting.push(delivery)
    }
    detach(dispatcher.attempt(delivery)).addObserver((exit) =>
      Exit.isFailure(exit) ? void detach(died(delivery, exit.cause)) : ended(exit.value),
    )
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

  return { slots, tell, nowMillis, woken, idle, openIfIdle, untilKeepingUp: recorder.untilKeepingUp }
})

/**
 * The delivery worker: claims due deliveries, makes the attempts, records them in batches, and claims again. The
 * backlog stays in the database. When it stops, it claims no more, and finishes and records the attempts in flight.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* DeliveryQueue
    const wakeups = yield* Wakeups
    const random = yield* SecureRandom.SecureRandom
    const options = yield* DeliveryWorkerOptions
    const { attemptTimeout } = options
    // An attempt that begins now ends before its lease; its token request may take as long.
    const maxClaimMillis = Duration.toMillis(
      Duration.subtract(leaseFor(attemptTimeout), Duration.times(attemptTimeout, 2)),
    )
    const { idle, nowMillis, openIfIdle, slots, tell, untilKeepingUp, woken } = yield* makePerformer(options)
    const wokenWithin = (time: Duration.Duration) => Effect.timeoutOption(Queue.take(woken), time)

    const claim = Effect.fnUntraced(function* (request: ClaimRequest) {
      const now = yield* DateTime.now
      const leaseUntil = DateTime.addDuration(now, leaseFor(attemptTimeout))
      const claim = { ...request, claimId: yield* random.ulid, now, leaseUntil }
      const begunAt = nowMillis()
      const claimed = yield* queue.claim(claim)
      if (claimed.deliveries.length > 0) yield* idle.close
      // The process stood still between the claim and its answer: others may have sent the deliveries since.
      if (nowMillis() - begunAt > maxClaimMillis) {
        tell({ _tag: "Claimed", claim, claimed: { ...claimed, deliveries: [] }, at: nowMillis() })
        yield* releaseClaims(queue, claimed.deliveries)
        yield* openIfIdle
        return { count: 0, more: true, throttledUntil: null }
      }
      tell({ _tag: "Claimed", claim, claimed, at: nowMillis() })
      return { count: claimed.deliveries.length, more: claimed.more, throttledUntil: claimed.throttledUntil }
      // An interrupted claim would leave its deliveries until their leases expire.
    }, Effect.uninterruptible)

    const work = Effect.gen(function* () {
      yield* untilKeepingUp
      const request = startClaim(slots)
      if (request === undefined) return yield* wokenWithin(pollInterval)
      const { count, more, throttledUntil } = yield* claim(request)
      if (count === request.limit || (more && count > 0) || Option.isSome(yield* Queue.poll(woken))) return
      if (more) return yield* wokenWithin(backlogSleep)
      const dueAt = yield* queue.nextDueAt
      const now = yield* DateTime.now
      const untilDue = [dueAt, throttledUntil]
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
    const look = Effect.gen(function* () {
      const { found, waitMillis } = yield* queue.look
      if (found) yield* Queue.offer(woken, undefined)
      yield* Effect.sleep(waitMillis)
    }).pipe(
      Effect.catch((error) =>
        Effect.andThen(Effect.logDebug(`The queue is not read: ${error.error}`), Effect.sleep(retryDelay)),
      ),
    )
    yield* Effect.forkScoped(Effect.forever(work))
    yield* Effect.forkScoped(Effect.forever(look))
    yield* Effect.forkScoped(Stream.runForEach(wakeups.onDeliveries, () => Queue.offer(woken, undefined)))
  }),
)

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
 * Releases deliveries in batches until its scope closes. Calls `onReleased` for each batch. A batch has deliveries of
 * many lanes: when thousands of lanes fail together, a statement for each would keep the claims from the database for
 * seconds.
 */
const makeReleaser = Effect.fnUntraced(function* (
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
 * Writes attempts, and tries again until the database answers. Calls `onUnreachable` while it does not. When a record
 * fails although the database answers, splits it until the failing attempt is alone; drops that attempt and releases
 * its delivery.
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
const makeRecorder = Effect.fnUntraced(function* (
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
