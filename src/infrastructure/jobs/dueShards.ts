import { Clock, Context, DateTime, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import { type Shards, shardsOf, eachShard, functionsOf, inShard } from "../database/shards.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"

/**
 * How long a shard that this process does not use stays unread: another replica may have stopped before it did what is
 * due there.
 */
const pollMillis = Duration.toMillis("4 seconds")
/** Shards that are read at the same time. */
const maxConcurrentShards = 4

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

/** Reads the first times of shards: of those that this process has changed, and of each after a poll interval. */
const makeTimes = (sql: SqlClient.SqlClient, { all, dirty }: Shards) => {
  const changed = dirty.follow()
  const times = all.map(() => nothing)
  const readAt = all.map(() => -Infinity)

  const read = Effect.fnUntraced(function* (shard: number, now: number) {
    // Before the statement, so that a change during it is not lost.
    changed.delete(shard)
    readAt[shard] = now
    times[shard] = yield* Effect.catch(inShard(sql, shard)(firstTimes(sql)), ({ error }) =>
      Effect.as(Effect.logDebug(`A shard cannot be read: ${error}`), nothing),
    )
  })

  /** The shards in which something of the kind is due. Those that cannot be read are read at the next poll. */
  return Effect.fnUntraced(function* (kind: Due, time: DateTime.Utc) {
    const now = Number(yield* Clock.monotonicTimeNanos) / 1e6
    const stale = all.filter((shard) => changed.has(shard) || readAt[shard]! + pollMillis <= now)
    yield* Effect.forEach(stale, (shard) => read(shard, now), { concurrency: maxConcurrentShards, discard: true })
    const due = all.filter((shard) => {
      const first = times[shard]![kind]
      return first !== null && first <= DateTime.toDateUtc(time)
    })
    due.forEach((shard) => changed.add(shard))
    return due
  })
}

/** Runs the sweeps of jobs and schedules in the shards in which something is due, and everywhere on one PostgreSQL. */
export class DueShards extends Context.Service<
  DueShards,
  {
    /** Runs a batch of a sweep for what is due at a time; returns the results of the available shards. */
    readonly run: <A, R>(
      kind: Due,
      time: DateTime.Utc,
      batch: Effect.Effect<A, Unavailable, R>,
    ) => Effect.Effect<ReadonlyArray<A>, Unavailable, R>
  }
>()("gatehouse/infrastructure/jobs/DueShards") {
  static readonly layer = Layer.effect(
    DueShards,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const shards = shardsOf(sql)
      if (shards === undefined) return DueShards.of({ run: (_kind, _time, batch) => eachShard(sql, batch) })
      const dueOf = makeTimes(sql, shards)
      return DueShards.of({
        run: (kind, time, batch) => Effect.flatMap(dueOf(kind, time), (due) => eachShard(sql, batch, due)),
      })
    }),
  )
}
