import { DateTime, Duration, Effect, Layer, Schedule } from "effect"
import { SecureRandom } from "effect/crypto"
import { maxFailureDays, maxFailureHours } from "../../domain/activity/Activities.ts"
import type { Every } from "../../domain/activity/Activity.ts"
import { ActivityRecorder } from "../../domain/activity/ActivityRecorder.ts"
import { ActivityRepository } from "../../domain/activity/ActivityRepository.ts"
import type { Unavailable } from "../../domain/Errors.ts"
import { RetentionDays } from "../../domain/Retention.ts"
import * as ReplicaFigures from "../telemetry/replicaFigures.ts"

const flushInterval = Duration.seconds(5)
const heartbeatInterval = Duration.seconds(20)
/** A replica that was not seen for so long is forgotten. */
const replicaMemory = { minutes: 10 }
/** Intervals that one statement removes. */
const removeBatchSize = 5_000

const quietly = (what: string) => (work: Effect.Effect<void, Unavailable>) =>
  work.pipe(
    Effect.catch((error) => Effect.logWarning(`${what}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(what, fault)),
  )

/** Removes old intervals. Minutes and hours of failures are kept for two days, everything else as RETENTION_DAYS says. */
const removeOld = Effect.gen(function* () {
  const repository = yield* ActivityRepository
  const days = yield* RetentionDays
  const now = yield* DateTime.now
  const remove = Effect.fnUntraced(function* (every: Every, age: Duration.Duration) {
    const before = DateTime.subtractDuration(now, age)
    while ((yield* repository.removeOld(every, before, removeBatchSize)) >= removeBatchSize) {
      yield* Effect.sleep("200 millis")
    }
  })
  yield* remove("minute", maxFailureHours)
  if (days !== undefined) {
    const kept = Duration.max(Duration.days(days), maxFailureDays)
    yield* remove("hour", kept)
    yield* remove("day", kept)
  }
  yield* repository.removeReplicas(DateTime.subtract(now, replicaMemory))
})

/** Writes what was counted every five seconds and at the stop, notes that this replica is alive and what it measured, and removes what is old. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const repository = yield* ActivityRepository
    const recorder = yield* ActivityRecorder
    const { ulid } = yield* SecureRandom.SecureRandom
    const [replicaId, startedAt] = [yield* ulid, yield* DateTime.now]
    const flush = quietly("Activity is not counted yet")(recorder.flush)
    const measure = yield* ReplicaFigures.make
    const beat = Effect.gen(function* () {
      const figures = yield* measure
      yield* repository.heartbeat({ replicaId, startedAt, seenAt: yield* DateTime.now, figures })
    })
    yield* Effect.addFinalizer(() =>
      Effect.andThen(flush, quietly("This replica counts as alive for a minute")(repository.leave(replicaId))),
    )
    yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced(flushInterval)))
    yield* Effect.forkScoped(
      Effect.repeat(quietly("This replica cannot say that it is alive")(beat), Schedule.spaced(heartbeatInterval)),
    )
    yield* quietly("Old activity is not removed")(
      Effect.provideService(removeOld, ActivityRepository, repository),
    ).pipe(Effect.repeat(Schedule.jittered(Schedule.spaced("10 minutes"))), Effect.forkScoped)
  }),
)
