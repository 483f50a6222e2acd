import { Clock, Context, DateTime, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import { type Buckets, bucketsOf, eachBucket, functionsOf, inBucket } from "../database/buckets.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"

/**
 * How long a bucket that this process does not use stays unread: another replica may have stopped before it did what is
 * due there.
 */
const pollMillis = Duration.toMillis("4 seconds")
/** Buckets that are read at the same time. */
const maxConcurrentBuckets = 4

/** What becomes due: leases expire, delayed jobs may run, schedules fire. */
type Due = "leases" | "delays" | "schedules"
/** The first time of each; `null` when there is none. */
type FirstTimes = Readonly<Record<Due, Date | null>>

const nothing: FirstTimes = { leases: null, delays: null, schedules: null }

const call = "SELECT * FROM pg_temp.gatehouse_first_times()"
// A function, because Citus keeps the plan of a statement on one table, and plans any other one each time.
const create = `
  CREATE OR REPLACE FUNCTION pg_temp.gatehouse_first_times(
    OUT leases timestamptz, OUT delays timestamptz, OUT schedules timestamptz
  ) LANGUAGE plpgsql AS $$
  BEGIN
    SELECT min(lease_expires_at) INTO leases FROM jobs WHERE status || '' = 'running';
    SELECT min(run_at) INTO delays FROM jobs WHERE status || '' = 'queued' AND delayed;
    SELECT min(next_at) INTO schedules FROM job_schedules WHERE priority >= -100;
  END $$`

/** Reads the end of one index for each kind. */
const firstTimes = (sql: SqlClient.SqlClient) => {
  functionsOf(sql)?.add(call, create)
  return sql.unsafe<FirstTimes>(call).pipe(
    Effect.map(([row]) => row!),
    orUnavailableWithin("sweep"),
  )
}

/** Reads the first times of buckets: of those that this process has changed, and of each after a poll interval. */
const makeTimes = (sql: SqlClient.SqlClient, { all, touched }: Buckets) => {
  const changed = touched.follow()
  const times = all.map(() => nothing)
  const readAt = all.map(() => -Infinity)

  const read = Effect.fnUntraced(function* (bucket: number, now: number) {
    // Before the statement, so that a change during it is not lost.
    changed.delete(bucket)
    readAt[bucket] = now
    times[bucket] = yield* Effect.catch(inBucket(sql, bucket)(firstTimes(sql)), ({ error }) =>
      Effect.as(Effect.logDebug(`A bucket cannot be read: ${error}`), nothing),
    )
  })

  /** The buckets in which something of the kind is due. Those that cannot be read are read at the next poll. */
  return Effect.fnUntraced(function* (kind: Due, time: DateTime.Utc) {
    const now = Number(yield* Clock.monotonicTimeNanos) / 1e6
    const stale = all.filter((bucket) => changed.has(bucket) || readAt[bucket]! + pollMillis <= now)
    yield* Effect.forEach(stale, (bucket) => read(bucket, now), { concurrency: maxConcurrentBuckets, discard: true })
    const due = all.filter((bucket) => {
      const first = times[bucket]![kind]
      return first !== null && first <= DateTime.toDateUtc(time)
    })
    due.forEach((bucket) => changed.add(bucket))
    return due
  })
}

/** Runs the sweeps of jobs and schedules in the buckets in which something is due, and everywhere on one PostgreSQL. */
export class DueBuckets extends Context.Service<
  DueBuckets,
  {
    /** Runs a batch of a sweep for what is due at a time; returns the results of the available buckets. */
    readonly run: <A, R>(
      kind: Due,
      time: DateTime.Utc,
      batch: Effect.Effect<A, Unavailable, R>,
    ) => Effect.Effect<ReadonlyArray<A>, Unavailable, R>
  }
>()("gatehouse/infrastructure/jobs/DueBuckets") {
  static readonly layer = Layer.effect(
    DueBuckets,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const buckets = bucketsOf(sql)
      if (buckets === undefined) return DueBuckets.of({ run: (_kind, _time, batch) => eachBucket(sql, batch) })
      const dueOf = makeTimes(sql, buckets)
      return DueBuckets.of({
        run: (kind, time, batch) => Effect.flatMap(dueOf(kind, time), (due) => eachBucket(sql, batch, due)),
      })
    }),
  )
}
