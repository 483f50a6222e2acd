import { Clock, DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { RoundRobinBatch } from "../../domain/roundRobin.ts"
import { date, dateOrNull } from "../database/fragments.ts"

/**
 * Rows that a sweep takes when they are due. They need a partial index on the time, and one on
 * `((org_id || ''), time)`. Both conditions are true of the same rows. They are written differently, so that a
 * statement with one of them can use one index only (ADR 14).
 *
 * Planner (due rows by time or by org): a plan that expects few rows would read all of the other index, and sort them.
 */
interface DueRows {
  readonly table: string
  /** The column with the time at which a row is due. */
  readonly time: string
  /** The condition of the index by time. */
  readonly byTime: string
  /** The condition of the index by org and time. */
  readonly byOrg: string
}

/** SQL: whether background work may change a row of an org here: the org does not move (ADR 36). */
export const isSettled = (sql: SqlClient.SqlClient, row: string) =>
  sql.literal(`NOT EXISTS (SELECT FROM org_moves m WHERE m.org_id = ${row}.org_id AND m.state <> 'copying')`)

/** SQL: whether a row of an org is the org's, and no copy that a move makes or has left (ADR 36). */
export const isPlaced = (sql: SqlClient.SqlClient, row: string) =>
  sql.literal(`NOT EXISTS (SELECT FROM org_moves m WHERE m.org_id = ${row}.org_id AND m.state IN ('arriving', 'left'))`)

/**
 * The CTEs that find the next orgs with due rows: `seen` has the next `limit` orgs with such rows, and `due` has those
 * with a due row. Reads one index entry for each org, however many rows it has.
 */
const orgsRoundRobin = (sql: SqlClient.SqlClient, rows: DueRows, { after, limit, now }: RoundRobinBatch) => {
  const where = sql.literal(rows.byOrg)
  const [table, time] = [sql(rows.table), sql(rows.time)]
  return sql`
    orgs AS (
      (SELECT org_id || '' AS org_id, ${time} AS due_at FROM ${table} WHERE ${where} AND org_id || '' > ${after}
       ORDER BY org_id || '', ${time} LIMIT 1)
      UNION ALL
      SELECT next.org_id, next.due_at FROM orgs CROSS JOIN LATERAL (
        SELECT r.org_id || '' AS org_id, r.${time} AS due_at FROM ${table} r WHERE ${where} AND r.org_id || '' > orgs.org_id
        ORDER BY r.org_id || '', r.${time} LIMIT 1
      ) AS next
    ), seen AS MATERIALIZED (
      SELECT org_id, due_at FROM orgs LIMIT ${limit}
    ), due AS MATERIALIZED (
      SELECT org_id FROM seen WHERE due_at <= ${date(now)}
    )`
}

/**
 * The beginning of the statement of a sweep's batch. `picked` is a WITH of the CTE `picked`, which locks the due rows
 * of the batch; `next` is SQL for the org after which the next batch begins, null after the last batch.
 *
 * @param since the time from which rows are read; null is the beginning
 * @param hasMore SQL: whether due rows are left although fewer than the limit were picked
 */
export const pickDue = (
  sql: SqlClient.SqlClient,
  rows: DueRows,
  columns: string,
  batch: RoundRobinBatch,
  since: DateTime.Utc | null,
  hasMore: Statement.Fragment = sql.literal("false"),
) => {
  const { after, limit, now } = batch
  const pick = (wanted: Statement.Fragment, most: Statement.Fragment) => sql`
    SELECT ${sql.literal(columns)} FROM ${sql(rows.table)}
    WHERE ${wanted} AND ${isSettled(sql, rows.table)}
      AND ${sql(rows.time)} >= coalesce(${dateOrNull(since)}::timestamptz, '-infinity')
      AND ${sql(rows.time)} <= ${date(now)}
    ORDER BY ${sql(rows.time)} LIMIT ${most} FOR UPDATE SKIP LOCKED`
  if (after === null) {
    return {
      picked: sql`WITH picked AS MATERIALIZED (${pick(sql.literal(rows.byTime), sql`${limit}`)})`,
      next: sql`CASE WHEN (SELECT count(*) FROM picked) = ${limit}::int OR ${hasMore} THEN '' END`,
    }
  }
  const ofOrg = sql`org_id || '' = due.org_id AND ${sql.literal(rows.byOrg)}`
  const share = sql`greatest(1, ${limit}::int / (SELECT count(*) FROM due))`
  return {
    picked: sql`
      WITH RECURSIVE ${orgsRoundRobin(sql, rows, batch)}, picked AS MATERIALIZED (
        SELECT taken.* FROM due CROSS JOIN LATERAL (${pick(ofOrg, share)}) AS taken
      )`,
    next: sql`CASE WHEN (SELECT count(*) FROM seen) = ${limit}::int THEN (SELECT max(org_id) FROM seen) END`,
  }
}

/** How far before the last batch a batch begins to read, in milliseconds, unless it reads from the beginning. */
const marginMillis = 10_000
/** The wait between two batches that read from the beginning, as a multiple of the time of one. */
const waitFactor = 20
/** Its maximum: what one org has left in an index, and a busy database, must not make the rows of others wait. */
const maxWaitMillis = 4_000

/**
 * Makes a function that runs batches of `pickDue` and chooses `since` for them. Rows that were due have left dead index
 * entries, which stay while any old transaction is open (ADR 30). So a batch reads from where the last one began, and
 * from the beginning as often as that takes a twentieth of the time, and at least every four seconds: a row may come
 * with a time before the last batch, or have been locked when it was due.
 *
 * @returns a function of the batch, its statement, and whether rows that were read are still due
 */
export const makeWalk = Effect.sync(() => {
  let position: DateTime.Utc | null = null
  let walkAt = -Infinity
  const nowMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

  return Effect.fnUntraced(function* <A extends { readonly next: string | null }, E, R>(
    batch: RoundRobinBatch,
    read: (since: DateTime.Utc | null) => Effect.Effect<A, E, R>,
    isLeft: (found: A) => boolean = () => false,
  ) {
    const begun = yield* nowMillis
    const wasSetBack =
      position !== null &&
      DateTime.isGreaterThan(position, DateTime.subtract(batch.now, { milliseconds: marginMillis }))
    const walks = batch.after !== null || begun >= walkAt || wasSetBack
    const found = yield* read(walks ? null : position)
    const ended = yield* nowMillis
    if (batch.after === null && walks) walkAt = ended + Math.min(waitFactor * (ended - begun), maxWaitMillis)
    if (batch.after === null && found.next === null && !isLeft(found)) {
      position = DateTime.subtract(batch.now, { milliseconds: marginMillis })
    }
    return found
  })
})
