import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { RetentionRepository } from "../../domain/Retention.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { texts } from "./arrays.ts"

interface EventRow {
  readonly id: string
  readonly job: string
  readonly created_at: Date
}

/**
 * What may go of these jobs: the events of which every delivery could be locked, as all do who change one, and none is
 * pending. Waits for nobody.
 */
const hold = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, jobs: ReadonlyArray<string>) {
  const deliveries = yield* sql<{ id: string; job: string }>`
    SELECT id, job_id AS job FROM deliveries WHERE job_id = ANY(${texts(jobs)}) AND state <> 'pending'
    ORDER BY id FOR UPDATE SKIP LOCKED`
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
      removeOld: ({ after, before, limit }) =>
        Effect.gen(function* () {
          // One replica at a time, for two would lock each other's deliveries out.
          const [turn] = yield* sql<{ ours: boolean }>`
            SELECT pg_try_advisory_xact_lock(hashtextextended('gatehouse:retention', 0)) AS ours`
          if (!turn!.ours) return { removed: 0, next: null }
          // Ids sort by time: what is old is at the head of the primary key, and nothing else is read.
          const rows = yield* sql<EventRow>`
            SELECT id, job_id AS job, created_at FROM events WHERE id > ${after} ORDER BY id LIMIT ${limit}`
          const isOld = (row: EventRow | undefined) =>
            row !== undefined && row.created_at.getTime() < DateTime.toEpochMillis(before)
          const old = rows.filter(isOld)
          const last = rows.at(-1)
          const next = rows.length === limit && isOld(last) ? last!.id : null
          if (old.length === 0) return { removed: 0, next }

          const going = yield* hold(
            sql,
            old.map(({ job }) => job),
          )
          // Each a statement of its own: it sees the attempt that was recorded just before its delivery was locked.
          yield* sql`DELETE FROM delivery_attempts WHERE delivery_id = ANY(${texts(going.deliveries)})`
          yield* sql`DELETE FROM deliveries WHERE id = ANY(${texts(going.deliveries)})`
          yield* sql`DELETE FROM events WHERE id = ANY(${texts(going.events)})`
          yield* sql`DELETE FROM jobs WHERE id = ANY(${texts(going.jobs)}) AND idempotency_key IS NULL`
          return { removed: going.events.length, next }
        }).pipe(sql.withTransaction, orUnavailable),
    })
  }),
)
