import { assert } from "@effect/vitest"
import { DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import * as RetentionSql from "#src/infrastructure/retention/retentionSql.ts"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { makeNeighbour } from "./crowding.ts"
import { onPostgres } from "./support.ts"

/**
 * Promise (Retention): A day that expires leaves the disk within a minute, requests beside its removal do not wait for
 * it, and the size of the database stays the same. Finished jobs and their idempotency keys go with it.
 */

/** Events of a day, each with a delivery; a twentieth of them with a second attempt, a tenth of a finished job. */
const count = Number(process.env.EVENTS ?? 50_000)
/** Days that are kept, each in a range of its own, and days that are measured. */
const keptDays = Number(process.env.KEPT_DAYS ?? 12)
const measuredDays = Number(process.env.MEASURED_DAYS ?? 10)
const jobsOfDay = 24 * Math.floor(Math.ceil(count / 24) / 10)
const day = Duration.days(1)
/**
 * The longest time of the removal of a day, and of a request beside it: a request that waits for the removal's locks
 * takes longer on any machine. What they take is logged.
 */
const [removalTime, requestMillis] = [Duration.minutes(1), 2_000]

/** Stores the events of a day, hour by hour, as they are once they are delivered. */
const fillDay = Effect.fnUntraced(function* (start: DateTime.Utc) {
  const sql = yield* SqlClient.SqlClient
  for (let hour = 0; hour < 24; hour++) {
    const at = DateTime.toDateUtc(DateTime.add(start, { hours: hour }))
    const rows = sql`generate_series(1, ${Math.ceil(count / 24)}::int) AS n, lpad(n::text, 13, '0') AS id`
    const prefix = idAt(at.getTime())
    yield* sql`
      INSERT INTO events (id, org_id, job_id, type, body, created_at)
      SELECT ${prefix}::text || '000' || id, 'org' || n % 50, CASE WHEN n % 10 = 0 THEN ${prefix}::text || '000' || id END,
        'invoice.paid', repeat(md5(id), 10), ${at} FROM ${rows}`
    // A job has the id of its event here.
    yield* sql`
      INSERT INTO finished_jobs (id, end_id, org_id, workflow, skip_callbacks, idempotency_key, priority, max_attempts,
        retry_delay_seconds, status, attempt, retried_attempts, result, created_at, finished_at)
      SELECT job_id, id, org_id, 'old', false, job_id, 0, 1, 0, 'completed', 1, '{}', body, created_at, created_at
      FROM events WHERE id BETWEEN ${prefix}::text || '000' AND ${prefix}::text || '001' AND job_id IS NOT NULL`
    yield* sql`
      INSERT INTO job_keys (org_id, key, job_id) SELECT org_id, idempotency_key, id FROM finished_jobs
      WHERE end_id BETWEEN ${prefix}::text || '000' AND ${prefix}::text || '001'`
    yield* sql`
      INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, attempt_started_at,
        attempt_duration_ms,
        attempt_status, attempt_body, created_at, updated_at)
      SELECT ${prefix}::text || id || '000', 'org' || n % 50, ${prefix}::text || '000' || id, 'endpoint' || n % 50,
        'delivered', 1, ${at}::timestamptz, 10, 200, 'ok', ${at}, ${at} FROM ${rows}`
    yield* sql`
      INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status)
      SELECT ${prefix}::text || id || '000', 'org' || n % 50, 1, ${at}, 10, 500 FROM ${rows} WHERE n % 20 = 0`
  }
})

const databaseSize = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ bytes: number }>`SELECT pg_database_size(current_database())::float8 AS bytes`,
    ([row]) => row!.bytes,
  ),
)

it.live(
  "a day that expires leaves the disk at once, no request waits for it, and the database keeps its size",
  function* () {
    const url = yield* freshPostgres()
    const world = RetentionSql.layer.pipe(
      Layer.provideMerge(Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })),
    )
    yield* Effect.gen(function* () {
      const { prepare, removeOldest } = yield* RetentionRepository
      const first = DateTime.startOf(DateTime.subtract(yield* DateTime.now, { days: 60 }), "day")
      // Before the neighbour's rows, which are later than all days: a range that is split moves later rows, and keeps
      // their space.
      for (let n = 0; n < keptDays + measuredDays; n++) {
        yield* prepare("webhooks", DateTime.add(first, { days: n }), day)
      }
      const service = yield* startService({ ...onPostgres(url).environment, RETENTION_DAYS: "off" })
      const neighbour = yield* makeNeighbour(service)
      // Its ids are after those of all days, which therefore split the pages of the indexes alike.
      yield* neighbour.beside(Effect.sleep("300 millis"))
      const sizes: Array<number> = []
      const waits: Array<number> = []
      const took: Array<number> = []
      for (let n = 0; n < keptDays + measuredDays; n++) {
        const start = DateTime.add(first, { days: n })
        yield* fillDay(start)
        const end = DateTime.add(start, { days: 1 })
        if (n < keptDays) continue
        const before = yield* databaseSize
        const removal = Effect.timed(removeOldest("webhooks", end, Duration.days(keptDays)))
        const { max, result } = yield* neighbour.beside(Effect.delay(removal, "300 millis"))
        assert.isAtLeast(result[1]!, count)
        sizes.push(yield* databaseSize)
        assert.isBelow(sizes.at(-1)!, before * (1 - 0.5 / (keptDays + 1)))
        took.push(Duration.toMillis(result[0]))
        waits.push(max)
      }
      const [kept] = yield* (yield* SqlClient.SqlClient)<{ jobs: number; keys: number }>`
          SELECT (SELECT count(*) FROM finished_jobs WHERE workflow = 'old')::int AS jobs,
            (SELECT count(*) FROM job_keys)::int AS keys`
      assert.strictEqual(kept!.jobs, keptDays * jobsOfDay)
      assert.strictEqual(kept!.keys, kept!.jobs)
      const mb = sizes.map((size) => Math.round(size / 1e6))
      yield* Effect.log(
        `A removal of ${count} events: ${Math.max(...took).toFixed(0)} ms at most; requests beside: ${Math.max(...waits).toFixed(0)} ms at most; MB after each day: ${mb.join(" ")}`,
      )
      assert.isBelow(Math.max(...took), Duration.toMillis(removalTime))
      // The median: on a busy machine single requests take longer.
      assert.isBelow(waits.toSorted((a, b) => a - b)[Math.floor(waits.length / 2)]!, requestMillis)
      assert.isBelow(Math.max(...sizes) / Math.min(...sizes), 1.05)
    }).pipe(Effect.provide(world))
  },
  Math.max(600_000, (keptDays + measuredDays) * count * 0.1),
)
