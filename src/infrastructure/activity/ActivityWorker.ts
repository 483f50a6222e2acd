import { Clock, Context, DateTime, Duration, Effect, Layer, Metric, Schedule } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cipher } from "../../domain/Cipher.ts"
import { RetentionDays } from "../../domain/Retention.ts"
import { maxFailureDays, maxFailureHours } from "../../domain/activity/Activities.ts"
import { type Every, quantile } from "../../domain/activity/Activity.ts"
import { ActivityRecorder } from "../../domain/activity/ActivityRecorder.ts"
import {
  ActivityRepository,
  type Durations,
  figuresMinutes,
  type ReplicaFigures,
} from "../../domain/activity/ActivityRepository.ts"
import { removeInBatches } from "../../domain/removeInBatches.ts"
import { byEarlierClock, logged } from "../background.ts"

/** How often a replica writes what it has counted. Source: 5 seconds, which are the delay of the overview. */
export const FlushInterval = Context.Reference<Duration.Duration>(
  "gatehouse/infrastructure/ActivityWorker/FlushInterval",
  {
    defaultValue: () => Duration.seconds(5),
  },
)
/** A replica says that it is alive with every fourth writing. */
const writesPerHeartbeat = 4
/** A replica that was not seen for so long is forgotten. */
const replicaMemory = { minutes: 10 }
/** Intervals that one statement removes. */
const removeBatchSize = 5_000

/**
 * Removes old intervals. Minutes, and hours of endpoints, are kept for two days, everything else as RETENTION_DAYS
 * says.
 */
const removeOld = Effect.gen(function* () {
  const repository = yield* ActivityRepository
  const days = yield* RetentionDays
  const now = yield* DateTime.now
  const remove = Effect.fnUntraced(function* (
    of: Parameters<typeof repository.removeOld>[0],
    every: Every,
    age: Duration.Duration,
  ) {
    const before = DateTime.subtractDuration(now, age)
    yield* removeInBatches(removeBatchSize, (size) => repository.removeOld(of, every, before, size))
  })
  yield* remove("activity_counts", "minute", maxFailureHours)
  yield* remove("endpoint_attempts", "hour", maxFailureHours)
  if (days !== undefined) {
    const kept = Duration.max(Duration.days(days), maxFailureDays)
    yield* remove("activity_counts", "hour", kept)
    yield* remove("activity_counts", "day", kept)
    yield* remove("endpoint_attempts", "day", kept)
  }
  yield* repository.removeReplicas(DateTime.subtract(now, replicaMemory))
})

/**
 * Writes what was counted every five seconds and at the stop, notes that this replica is alive and what it measured,
 * and removes what is old.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const repository = yield* ActivityRepository
    const recorder = yield* ActivityRecorder
    const { ulid } = yield* SecureRandom.SecureRandom
    const { keyIds } = yield* Cipher
    const [replicaId, startedAt] = [yield* ulid, yield* DateTime.now]
    const flush = logged("Activity is not counted yet", recorder.flush)
    const measure = yield* make
    const beat = Effect.gen(function* () {
      const figures = yield* measure
      yield* repository.heartbeat({ replicaId, startedAt, seenAt: yield* DateTime.now, figures }, keyIds[0])
    })
    yield* Effect.addFinalizer(() =>
      Effect.andThen(flush, logged("This replica counts as alive for a minute", repository.leave(replicaId))),
    )
    yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced(yield* FlushInterval)))
    yield* Effect.forkScoped(
      Effect.repeat(
        logged("This replica cannot say that it is alive", beat),
        Schedule.spaced(Duration.times(yield* FlushInterval, writesPerHeartbeat)),
      ),
    )
    const remove = byEarlierClock(Effect.provideService(removeOld, ActivityRepository, repository))
    yield* logged("Old activity is not removed", remove).pipe(
      Effect.repeat(Schedule.jittered(Schedule.spaced("10 minutes"))),
      Effect.forkScoped,
    )
  }),
)

/** How often each bucket of a histogram was hit, by its upper boundary in seconds; infinite for the last. */
type Buckets = ReadonlyMap<number, number>

const measured = ["requests", "validations", "attempts", "database"] as const
type Measured = (typeof measured)[number]
type Counts = Readonly<Record<Measured, Buckets>>

const validations = "/api/v0/keys/validate"
/**
 * Operations that wait for work, for what changes, for a receiver or for a model: their durations are not the
 * service's.
 */
const waiting = new Set(["/v1/jobs/claim", "/api/v0/live", "/v1/webhooks/test", "/api/svc/chat"])

/** Which figure a series counts for. */
const figureOf = ({ attributes, id }: Metric.Metric.Snapshot): Measured | undefined => {
  if (id === "gatehouse_database_operation_duration_seconds") return "database"
  if (id === "gatehouse_delivery_attempt_duration_seconds") return "attempts"
  if (id !== "http_request_duration_seconds") return undefined
  const route = attributes?.["route"] ?? ""
  if (route === validations) return "validations"
  return /^\/(?:api|v1)\//.test(route) && !waiting.has(route) ? "requests" : undefined
}

const addBuckets = (to: Map<number, number>, { buckets, count }: Metric.HistogramState) => {
  let below = 0
  for (const [boundary, cumulated] of [...buckets, [Number.POSITIVE_INFINITY, count] as const]) {
    to.set(boundary, (to.get(boundary) ?? 0) + cumulated - below)
    below = cumulated
  }
}

/** A quantile of what was counted between two states of a histogram, in seconds. */
const quantileSince = (now: Buckets, before: Buckets | undefined, share: number) =>
  quantile(
    [...now].map(([boundary, count]) => [boundary, count - (before?.get(boundary) ?? 0)] as const),
    share,
  )

const totalOf = (buckets: Buckets | undefined) => [...(buckets?.values() ?? [])].reduce((sum, count) => sum + count, 0)

const durationsOf = (now: Buckets, before: Buckets | undefined, minutes: number): Durations => {
  const millis = (share: number) => {
    const seconds = quantileSince(now, before, share)
    return seconds === null ? null : Number((seconds * 1000).toPrecision(3))
  }
  const count = totalOf(now) - totalOf(before)
  return { perMinute: Number((count / minutes).toPrecision(3)), p50Millis: millis(0.5), p99Millis: millis(0.99) }
}

/** Right after the start, a few requests would look like many a minute. */
const minimumMillis = 10_000
/** Snapshots that are remembered, for intervals from 5 seconds on. */
const maxSnapshots = 60

/** Returns an effect that says what this process measured since the oldest of its calls in the last minutes. */
export const make = Effect.gen(function* () {
  const snapshots: Array<{ readonly at: number; readonly counts: Counts }> = []
  const read = Effect.gen(function* () {
    const counts = Object.fromEntries(measured.map((name) => [name, new Map()])) as Record<
      Measured,
      Map<number, number>
    >
    const gauges = new Map<string, number>()
    for (const series of yield* Metric.snapshot) {
      const figure = series.type === "Histogram" ? figureOf(series) : undefined
      if (figure !== undefined) addBuckets(counts[figure], series.state as Metric.HistogramState)
      if (series.type === "Gauge") gauges.set(series.id, Number(series.state.value))
    }
    return { at: yield* Clock.currentTimeMillis, counts, gauges }
  })
  snapshots.push(yield* read)
  return Effect.gen(function* () {
    const { at, counts, gauges } = yield* read
    while (
      snapshots.length > maxSnapshots ||
      (snapshots.length > 1 && snapshots[0]!.at < at - figuresMinutes * 60_000)
    ) {
      snapshots.shift()
    }
    const before = snapshots[0]!
    snapshots.push({ at, counts })
    const minutes = Math.max(minimumMillis, at - before.at) / 60_000
    const durations = (name: Measured) => durationsOf(counts[name], before.counts[name], minutes)
    return {
      requests: durations("requests"),
      validations: durations("validations"),
      attempts: durations("attempts"),
      database: durations("database"),
      databaseInFlight: gauges.get("gatehouse_database_operations_in_flight") ?? 0,
      databaseConnections: gauges.get("gatehouse_database_connections_max") ?? 0,
    } satisfies ReplicaFigures
  })
})
