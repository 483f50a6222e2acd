/* oxlint-disable no-console -- a program for the terminal */
import { NodeRuntime } from "@effect/platform-node"
import { DateTime, Duration, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { DeliveryQueue } from "../src/domain/DeliveryQueue.ts"
import { Database } from "../src/infrastructure/Database.ts"
import * as DeliveryQueueSql from "../src/infrastructure/sql/DeliveryQueue.ts"
import { restartablePostgres } from "../test/faults/postgres.ts"

/** How long a claim takes beside none and beside a million finished deliveries: `node bench/claims.ts`. */
const endpoints = 100
const median = (times: ReadonlyArray<number>) => times.toSorted((a, b) => a - b)[times.length >> 1]!

/** Adds events with a delivery to every endpoint each. */
const add = Effect.fnUntraced(function* (name: string, events: number, state: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
    SELECT ${name} || n, 'o', 'w', false, 'completed', now(), now() FROM generate_series(1, ${events}::int) n`
  yield* sql`INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT ${name} || n, 'o', ${name} || n, 'job.completed', repeat('x', 500), now() FROM generate_series(1, ${events}::int) n`
  yield* sql`INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
    SELECT ${name} || n || '-' || w.id, 'o', ${name} || n, ${name} || n, w.id, w.id, ${state}, now(), now()
    FROM generate_series(1, ${events}::int) n, webhook_endpoints w`
  yield* sql`INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked)
    SELECT lane, id, event_id, 0, 0, now() - interval '1 minute', false FROM deliveries
    WHERE event_id LIKE ${`${name}%`} AND state = 'pending'`
})

const measure = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const queue = yield* DeliveryQueue
  const now = yield* DateTime.now
  yield* sql`UPDATE pending_deliveries SET claim_id = NULL, due_at = now() - interval '1 minute' WHERE claim_id IS NOT NULL`
  yield* sql`VACUUM ANALYZE pending_deliveries`
  yield* sql`CHECKPOINT`
  const times: Array<number> = []
  for (let n = 0; n < 90; n++) {
    const claim = { now, leaseUntil: DateTime.add(now, { minutes: 1 }), limit: 100, laneCap: 10, inFlight: new Map() }
    const [took, claimed] = yield* Effect.timed(queue.claim({ ...claim, claimId: `c${n}` }))
    times.push(Duration.toMillis(took))
    if (claimed.length !== 100) return yield* Effect.die(new Error(`Only ${claimed.length} were claimed`))
  }
  return median(times.slice(10))
})

const run = Effect.gen(function* () {
  const { url } = yield* restartablePostgres
  const database = Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('o', 'o', now())`
    yield* sql`INSERT INTO webhook_endpoints (id, org_id, url, active, secret, created_at, updated_at)
      SELECT 'w' || n, 'o', 'http://127.0.0.1/', true, 's', now(), now() FROM generate_series(1, ${endpoints}::int) n`
    yield* add("due", 100, "pending")
    yield* sql`VACUUM ANALYZE`
    const alone = [yield* measure, yield* measure, yield* measure]
    for (let n = 0; n < 10; n++) yield* add(`done${n}-`, 1_000, "delivered")
    yield* sql`VACUUM ANALYZE`
    const beside = [yield* measure, yield* measure, yield* measure]
    console.log("ms for a claim of 100, alone:", alone, "beside a million finished:", beside)
  }).pipe(Effect.provide(Layer.provideMerge(DeliveryQueueSql.layer, database)))
})

NodeRuntime.runMain(Effect.scoped(run))
