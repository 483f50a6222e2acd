import { DateTime, Effect, Layer, Schedule } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { type OldEvent, Retention, type RetentionBatch, RetentionRepository } from "../../domain/Retention.ts"
import { serviceEventTypes } from "../../domain/webhooks/EventPatterns.ts"
import { texts } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { bytesOf, subtractStoredBytes } from "../orgs/storedBytes.ts"
import { stateNow } from "../webhooks/lanes.ts"

interface EventRow extends OldEvent {
  readonly createdAt: Date
}

/** Bytes that a statement has removed of an org. */
interface Freed {
  readonly orgId: string
  readonly bytes: number
}

const sumByOrg = (freed: ReadonlyArray<Freed>) => {
  const bytes = new Map<string, number>()
  for (const { orgId, bytes: more } of freed) bytes.set(orgId, (bytes.get(orgId) ?? 0) + more)
  return bytes
}

/**
 * Reads the next events, with one row for each delivery, and one row for an event without deliveries. Both loops are
 * nested and follow the order of the events, so no more rows are read than returned.
 */
const readDeliveries = (sql: SqlClient.SqlClient, { after, limit }: RetentionBatch) => sql<EventRow>`
  SELECT e.id, e.job_id AS "jobId", e.created_at AS "createdAt"
  FROM (SELECT id, job_id, created_at FROM events WHERE id > ${after} ORDER BY id LIMIT ${limit}) AS e
  LEFT JOIN LATERAL (
    SELECT 1 FROM deliveries WHERE job_id = e.job_id
    UNION ALL SELECT 1 FROM deliveries WHERE event_id = e.id AND job_id IS NULL LIMIT ${limit + 1}
  ) AS d ON true
  LIMIT ${limit + 1}`

/**
 * Locks what can be removed of these events: those whose deliveries are all locked by this call and not pending. A
 * delivery is pending by its row, or by a recovery that has not reached the row. Skips deliveries that others have
 * locked, and events whose sweep still inserts deliveries.
 */
const lockRemovable = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, old: ReadonlyArray<OldEvent>) {
  const jobs = texts(old.flatMap(({ jobId }) => jobId ?? []))
  const withoutJob = texts(old.filter(({ jobId }) => jobId === null).map(({ id }) => id))
  // By job or event first: a plan that follows the order of the ids would read all deliveries.
  const deliveries = yield* sql<{ id: string; event: string }>`
    WITH found AS MATERIALIZED (
      SELECT id FROM deliveries WHERE job_id = ANY(${jobs})
      UNION ALL SELECT id FROM deliveries WHERE event_id = ANY(${withoutJob}) AND job_id IS NULL
    )
    SELECT d.id, d.event_id AS event FROM deliveries d
    WHERE d.id = ANY(ARRAY(SELECT id FROM found)) AND d.state <> 'pending' AND ${stateNow(sql)} <> 'pending'
    ORDER BY d.id FOR UPDATE OF d SKIP LOCKED`
  const locked = Map.groupBy(deliveries, ({ event }) => event)
  // A later statement than the one above: when the sweep of an event is done, all of its deliveries are counted here.
  const events = yield* sql<{ id: string; job: string | null; deliveries: number }>`
    SELECT e.id, e.job_id AS job, CASE WHEN e.job_id IS NULL
      THEN (SELECT count(*)::int FROM deliveries d WHERE d.event_id = e.id AND d.job_id IS NULL)
      ELSE (SELECT count(*)::int FROM deliveries d WHERE d.job_id = e.job_id) END AS deliveries
    FROM events e WHERE e.id = ANY(${texts(old.map(({ id }) => id))})
      AND NOT EXISTS (SELECT FROM sweeps s WHERE s.org_id = e.org_id
        AND (s.event_id = e.id OR s.kind = 'emit' AND e.id = ANY(s.receivers)))`
  const removable = events.filter(({ deliveries, id }) => deliveries === (locked.get(id)?.length ?? 0))
  return {
    events: removable.map(({ id }) => id),
    jobs: removable.flatMap(({ job }) => job ?? []),
    deliveries: removable.flatMap(({ id }) => locked.get(id) ?? []).map(({ id }) => id),
  }
})

/** The removal of old jobs and events in PostgreSQL. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return RetentionRepository.of({
      // Ids sort by time: old events are at the head of the primary key, and no others are read.
      findOld: (batch) =>
        readDeliveries(sql, batch).pipe(
          Effect.map((rows) => {
            const before = DateTime.toEpochMillis(batch.before)
            const events = [...new Map(rows.map((row) => [row.id, row])).values()]
            // The limit may have cut the deliveries of the last event.
            const complete = rows.length > batch.limit && events.length > 1 ? events.slice(0, -1) : events
            return complete.filter(({ createdAt }) => createdAt.getTime() < before)
          }),
          orUnavailableWithin("sweep"),
        ),

      remove: (events) =>
        Effect.gen(function* () {
          // One replica at a time: two would skip the deliveries that the other has locked.
          const [lock] = yield* sql<{ ours: boolean }>`
            SELECT pg_try_advisory_xact_lock(hashtextextended('gatehouse:retention', 0)) AS ours`
          if (!lock!.ours) return null
          const removable = yield* lockRemovable(sql, events)
          // Separate statements, so that they see an attempt that was recorded just before its delivery was locked.
          const gone = (deleted: Statement.Fragment, bytes: Statement.Fragment) => sql<Freed>`
            WITH gone AS (${deleted} RETURNING org_id, ${bytes} AS bytes)
            SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes FROM gone GROUP BY org_id`
          const sized = (kind: Parameters<typeof bytesOf>[0]) => sql.literal(bytesOf(kind))
          const deliveries = texts(removable.deliveries)
          const freed = [
            yield* gone(sql`DELETE FROM delivery_attempts WHERE delivery_id = ANY(${deliveries})`, sized("attempt")),
            yield* gone(sql`DELETE FROM deliveries WHERE id = ANY(${deliveries})`, sized("delivery")),
            yield* gone(
              sql`DELETE FROM events WHERE id = ANY(${texts(removable.events)})`,
              // Events of the service's own do not count: nobody stored them.
              sql`CASE WHEN type = ANY(${texts(serviceEventTypes)}) THEN 0 ELSE ${sized("event")} END`,
            ),
            yield* gone(
              // By id first: a plan could otherwise read all jobs without an idempotency key.
              sql`
                DELETE FROM jobs WHERE id = ANY(ARRAY(
                  SELECT id FROM (SELECT id, idempotency_key FROM jobs WHERE id = ANY(${texts(removable.jobs)}) OFFSET 0) AS found
                  WHERE idempotency_key IS NULL))`,
              sized("job"),
            ),
          ]
          yield* subtractStoredBytes(sql, sumByOrg(freed.flat()))
          return removable.events.length
        }).pipe(sql.withTransaction, orUnavailableWithin("sweep")),

      removeCanceled: (before, limit) =>
        Effect.gen(function* () {
          const freed = yield* sql<Freed & { readonly jobs: number }>`
            WITH gone AS (
              DELETE FROM jobs WHERE id = ANY(ARRAY(
                SELECT id FROM jobs
                WHERE status = 'canceled' AND idempotency_key IS NULL AND finished_at < ${DateTime.toDateUtc(before)}
                ORDER BY finished_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
              ))
              RETURNING org_id, ${sql.literal(bytesOf("job"))} AS bytes
            )
            SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes, count(*)::int AS jobs FROM gone GROUP BY org_id`
          yield* subtractStoredBytes(sql, sumByOrg(freed))
          return freed.reduce((sum, { jobs }) => sum + jobs, 0)
        }).pipe(sql.withTransaction, orUnavailableWithin("sweep")),

      // Ids sort by time: old entries are at the head of the primary key, and no others are read.
      removeEntries: (before, limit) =>
        sql`
          DELETE FROM audit_log WHERE id = ANY(ARRAY(
            SELECT id FROM (SELECT id, at FROM audit_log ORDER BY id LIMIT ${limit}) AS oldest
            WHERE at < ${DateTime.toDateUtc(before)})) RETURNING 1`.pipe(
          Effect.map((removed) => removed.length),
          orUnavailableWithin("sweep"),
        ),
    })
  }),
)

/** Removes old jobs and events about every hour. The jitter spreads the work of replicas. */
export const retentionWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { removeOld } = yield* Retention
    yield* removeOld.pipe(
      Effect.tap((removed) =>
        removed === 0 ? Effect.void : Effect.logInfo(`${removed} events past RETENTION_DAYS are removed`),
      ),
      Effect.catch((error) => Effect.logWarning(`Old events are not removed: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Old events are not removed", fault)),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
