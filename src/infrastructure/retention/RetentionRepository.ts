import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type OldEvent, type RetentionBatch, RetentionRepository } from "../../domain/Retention.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { texts } from "../database/arrays.ts"
import { stateNow } from "../webhooks/lanes.ts"
import { subtractStoredBytes } from "../orgs/storedBytes.ts"

interface EventRow extends OldEvent {
  readonly createdAt: Date
}

/** How many bytes of an org a statement has removed. */
interface Freed {
  readonly orgId: string
  readonly bytes: number
}

const byOrg = (freed: ReadonlyArray<Freed>) => {
  const bytes = new Map<string, number>()
  for (const { orgId, bytes: more } of freed) bytes.set(orgId, (bytes.get(orgId) ?? 0) + more)
  return bytes
}

/**
 * The next events with a row for each of their deliveries, and one for an event without any. Nested loops both, in the order
 * of the events and no further than the limit: no more rows are read than returned.
 */
const readDeliveries = (sql: SqlClient.SqlClient, { after, limit }: RetentionBatch) => sql<EventRow>`
  SELECT e.id, e.job_id AS "jobId", e.created_at AS "createdAt"
  FROM (SELECT id, job_id, created_at FROM events WHERE id > ${after} ORDER BY id LIMIT ${limit}) AS e
  LEFT JOIN LATERAL (SELECT 1 FROM deliveries WHERE job_id = e.job_id LIMIT ${limit + 1}) AS d ON true
  LIMIT ${limit + 1}`

/**
 * What may go of these jobs: the events of which every delivery could be locked, as all do who change one, and none is
 * pending, by its row or by a recovery that has not come to the row. Waits for nobody.
 */
const hold = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, jobs: ReadonlyArray<string>) {
  // Found by job first: for the order alone a plan would read all deliveries there are.
  const deliveries = yield* sql<{ id: string; job: string }>`
    WITH found AS MATERIALIZED (SELECT id FROM deliveries WHERE job_id = ANY(${texts(jobs)}))
    SELECT d.id, d.job_id AS job FROM deliveries d
    WHERE d.id = ANY(ARRAY(SELECT id FROM found)) AND d.state <> 'pending' AND ${stateNow(sql)} <> 'pending'
    ORDER BY d.id FOR UPDATE OF d SKIP LOCKED`
  const held = Map.groupBy(deliveries, ({ job }) => job)
  const events = yield* sql<{ id: string; job: string; deliveries: number }>`
    SELECT e.id, e.job_id AS job, (SELECT count(*)::int FROM deliveries d WHERE d.job_id = e.job_id) AS deliveries
    FROM events e WHERE e.job_id = ANY(${texts(jobs)})`
  const going = events.filter(({ deliveries, job }) => deliveries === (held.get(job)?.length ?? 0))
  return {
    events: going.map(({ id }) => id),
    jobs: going.map(({ job }) => job),
    deliveries: going.flatMap(({ job }) => held.get(job) ?? []).map(({ id }) => id),
  }
})

/** The removal of what is past its time, in PostgreSQL. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return RetentionRepository.of({
      // Ids sort by time: what is old is at the head of the primary key, and nothing else is read.
      findOld: (batch) =>
        readDeliveries(sql, batch).pipe(
          Effect.map((rows) => {
            const before = DateTime.toEpochMillis(batch.before)
            const events = [...new Map(rows.map((row) => [row.id, row])).values()]
            // Of the last one not all deliveries may have been read.
            const whole = rows.length > batch.limit && events.length > 1 ? events.slice(0, -1) : events
            return whole.filter(({ createdAt }) => createdAt.getTime() < before)
          }),
          orUnavailableWithin("sweep"),
        ),

      remove: (events) =>
        Effect.gen(function* () {
          // One replica at a time, for two would lock each other's deliveries out.
          const [turn] = yield* sql<{ ours: boolean }>`
            SELECT pg_try_advisory_xact_lock(hashtextextended('gatehouse:retention', 0)) AS ours`
          if (!turn!.ours) return null
          const jobs = events.map(({ jobId }) => jobId)
          const going = yield* hold(sql, jobs)
          // Each a statement of its own: it sees the attempt that was recorded just before its delivery was locked.
          yield* sql`DELETE FROM delivery_attempts WHERE delivery_id = ANY(${texts(going.deliveries)})`
          yield* sql`DELETE FROM deliveries WHERE id = ANY(${texts(going.deliveries)})`
          const payloads = yield* sql<Freed>`
            WITH gone AS (
              DELETE FROM events WHERE id = ANY(${texts(going.events)}) RETURNING org_id, octet_length(body) AS bytes
            )
            SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes FROM gone GROUP BY org_id`
          // Found by id first: a plan may not go through all jobs that have no key.
          const values = yield* sql<Freed>`
            WITH found AS MATERIALIZED (SELECT id, idempotency_key FROM jobs WHERE id = ANY(${texts(going.jobs)})), gone AS (
              DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM found WHERE idempotency_key IS NULL))
              RETURNING org_id, coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0)
                + coalesce(octet_length(error), 0) + coalesce(octet_length(mapped_stack), 0) AS bytes
            )
            SELECT org_id AS "orgId", sum(bytes)::float8 AS bytes FROM gone GROUP BY org_id`
          yield* subtractStoredBytes(sql, byOrg([...payloads, ...values]))
          return going.events.length
        }).pipe(sql.withTransaction, orUnavailableWithin("sweep")),
    })
  }),
)
