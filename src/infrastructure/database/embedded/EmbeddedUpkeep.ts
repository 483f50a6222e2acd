import { Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"

const MIB = 1024 * 1024

/**
 * Does once what a PostgreSQL server's autovacuum and checkpointer do, by autovacuum's thresholds: the embedded engine has
 * no background processes, and without this its tables and its log only ever grow.
 * Takes how many bytes of log may be left to replay at a start after a crash.
 */
export const tend = Effect.fn("EmbeddedUpkeep.tend")(function* (logBeforeCheckpoint: number) {
  const sql = yield* SqlClient.SqlClient
  const worn = yield* sql<{ name: string }>`
    SELECT format('%I.%I', t.schemaname, t.relname) AS name
    FROM pg_stat_all_tables t JOIN pg_class c ON c.oid = t.relid
    WHERE c.relkind = 'r' AND (t.n_dead_tup > 50 + 0.2 * t.n_live_tup
      OR t.n_mod_since_analyze > 50 + 0.1 * t.n_live_tup OR t.n_ins_since_vacuum > 1000 + 0.2 * t.n_live_tup
      OR age(c.relfrozenxid) > 100000000)`
  for (const { name } of worn) yield* sql`VACUUM (ANALYZE) ${sql.literal(name)}`
  const [log] = yield* sql<{ bytes: number }>`
    SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn)::float8 AS bytes FROM pg_control_checkpoint()`
  if (log!.bytes > logBeforeCheckpoint) yield* sql`CHECKPOINT`
})

/** Tends the embedded database every minute. */
export const upkeep: Effect.Effect<void, never, SqlClient.SqlClient> = tend(64 * MIB).pipe(
  Effect.catchCause((cause) => Effect.logWarning("The upkeep of the embedded database failed", cause)),
  Effect.repeat(Schedule.spaced("1 minute")),
  Effect.asVoid,
)
