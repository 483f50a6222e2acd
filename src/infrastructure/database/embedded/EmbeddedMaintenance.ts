import { Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"

/** Limit of the log before a checkpoint: a start after a crash replays at most this. */
const maxLogBytes = 64 * 1024 * 1024

/**
 * Runs once what autovacuum (with its thresholds) and the checkpointer do in a PostgreSQL server. The embedded engine has no
 * background processes, so its tables and its log would only grow.
 *
 * @param maxLogBytes the log size that causes a checkpoint
 */
export const maintain = Effect.fn("EmbeddedMaintenance.maintain")(function* (maxLogBytes: number) {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql<{ name: string }>`
    SELECT format('%I.%I', t.schemaname, t.relname) AS name
    FROM pg_stat_all_tables t JOIN pg_class c ON c.oid = t.relid
    WHERE c.relkind = 'r' AND (t.n_dead_tup > 50 + 0.2 * t.n_live_tup
      OR t.n_mod_since_analyze > 50 + 0.1 * t.n_live_tup OR t.n_ins_since_vacuum > 1000 + 0.2 * t.n_live_tup
      OR age(c.relfrozenxid) > 100000000)`
  for (const { name } of tables) yield* sql`VACUUM (ANALYZE) ${sql.literal(name)}`
  const [log] = yield* sql<{ bytes: number }>`
    SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn)::float8 AS bytes FROM pg_control_checkpoint()`
  if (log!.bytes > maxLogBytes) yield* sql`CHECKPOINT`
})

/** Maintains the embedded database every minute. */
export const maintenance: Effect.Effect<void, never, SqlClient.SqlClient> = maintain(maxLogBytes).pipe(
  Effect.catchCause((cause) => Effect.logWarning("The maintenance of the embedded database failed", cause)),
  Effect.repeat(Schedule.spaced("1 minute")),
  Effect.asVoid,
)
