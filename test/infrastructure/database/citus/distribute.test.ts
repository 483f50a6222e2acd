import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { SqlClient } from "effect/sql"
import { shardOf, schemaOf } from "#src/infrastructure/database/shards.ts"
import { citusUrl, freshUndistributed } from "../../../support/citus.ts"
import { runCli, spawnCli } from "../../../support/cli.ts"
import { adminClient } from "../../../support/databases.ts"
import { encryptionKey } from "../../../support/server.ts"
import { until } from "../../../support/wait.ts"

const shards = 3
const orgs = 30
const filled = [
  "webhook_endpoints",
  "jobs",
  "events",
  "deliveries",
  "delivery_attempts",
  "pending_deliveries",
  "sweeps",
] as const

/** Rows of all tables that grow, and a sweep that erases an org, which stays on the platform. */
const fill = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const each = sql`generate_series(1, 3000) AS n`
  const [org, id] = [sql.literal(`'org' || n % ${orgs}`), sql.literal("lpad(n::text, 26, '0')")]
  yield* sql`INSERT INTO orgs (id, name, created_at) SELECT 'org' || n, 'o', now() FROM generate_series(0, ${orgs - 1}::int) n`
  yield* sql`
    INSERT INTO webhook_endpoints (id, org_id, url, active, secret, created_at, updated_at)
    SELECT 'w' || n, ${org}, 'http://127.0.0.1', true, 's', now(), now() FROM generate_series(0, ${orgs - 1}::int) n`
  yield* sql`
    INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
    SELECT ${id}, ${org}, 'w', false, 'completed', now(), now() FROM ${each}`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT ${id}, ${org}, ${id}, 'job.completed', 'body ' || n, now() FROM ${each}`
  yield* sql`
    INSERT INTO deliveries (id, org_id, event_id, job_id, endpoint_id, lane, state, created_at, updated_at)
    SELECT ${id}, ${org}, ${id}, ${id}, 'w' || n % ${sql.literal(String(orgs))}, 'l', 'pending', now(), now() FROM ${each}`
  yield* sql`
    INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms)
    SELECT ${id}, ${org}, 1, now(), 1 FROM ${each}`
  // As a version before orgs took turns wrote them.
  yield* sql`
    INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, parked)
    SELECT 'l', ${id}, ${id}, 1, 1, now(), false FROM ${each}`
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, created_at)
    VALUES ('s1', 'org1', 'erase', now()), ('s2', 'org2', 'deactivate', now())`
})

/** The contents of each table in some schemas: the number of rows, and a sum over all of their columns. */
const contents = (sql: SqlClient.SqlClient, schemas: ReadonlyArray<string>) =>
  Effect.forEach(filled, (table) =>
    Effect.map(
      Effect.forEach(schemas, (schema) => {
        const row = table === "pending_deliveries" ? sql`(to_jsonb(r) - 'org_id')::text` : sql`to_jsonb(r)::text`
        return sql<{ rows: number; sum: number }>`
          SELECT count(*)::int AS rows, coalesce(sum(hashtext(${row})), 0)::float8 AS sum FROM ${sql(`${schema}.${table}`)} r`
      }),
      (parts) => {
        const found = parts.flat()
        const total = (of: (part: (typeof found)[number]) => number) => found.reduce((sum, part) => sum + of(part), 0)
        return { table, rows: total(({ rows }) => rows), sum: total(({ sum }) => sum) }
      },
    ),
  )

describe.skipIf(citusUrl === undefined)("gatehouse distribute", () => {
  it.live("moves every row once, also when it is killed between a copy and its deletion", () =>
    Effect.gen(function* () {
      const url = yield* freshUndistributed()
      const env = { DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }
      const sql = yield* adminClient(url)
      const distribute = runCli(["distribute", "--shards", `${shards}`], { env })
      yield* fill(sql)
      const before = yield* contents(sql, ["public"])

      const inSecond = Array.from({ length: orgs }, (_, n) => `org${n}`).find((id) => shardOf(id, shards) === 1)!
      yield* Effect.gen(function* () {
        // The row can be copied, and not deleted.
        yield* sql`SELECT FROM deliveries WHERE org_id = ${inSecond} LIMIT 1 FOR UPDATE`
        const watcher = yield* adminClient(url)
        const killed = yield* Effect.forkChild(spawnCli(["distribute", "--shards", `${shards}`], { env }))
        const waiting = watcher<{ query: string }>`
          SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
            AND application_name = 'gatehouse migrations'`
        yield* until("the deletion that waits", waiting, ([row]) => row?.query.includes("DELETE") === true)
        // SIGKILL
        yield* Fiber.interrupt(killed)
      }).pipe(Effect.scoped, sql.withTransaction)

      const half = yield* contents(sql, ["public"])
      assert.isAbove(half.find(({ table }) => table === "deliveries")!.rows, 0)
      assert.strictEqual(half.find(({ table }) => table === "jobs")!.rows, 0)
      const again = yield* distribute
      assert.strictEqual(again.code, 0, again.err)
      const schemas = Array.from({ length: shards }, (_, shard) => schemaOf(shard))
      assert.deepStrictEqual(yield* contents(sql, ["public", ...schemas]), before)
      const left = (yield* contents(sql, ["public"])).filter(({ rows }) => rows > 0)
      assert.deepStrictEqual(
        left.map(({ rows, table }) => ({ rows, table })),
        [{ table: "sweeps", rows: 1 }],
      )

      const last = yield* distribute
      assert.strictEqual(last.code, 0, last.err)
      assert.include(last.err + last.out, "There is nothing to do")
    }).pipe(Effect.scoped),
  )
})
