import { assert } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as Migrations from "#src/infrastructure/database/Migrations.ts"
import { adminClient, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { until } from "../support/wait.ts"
import { onPostgres } from "./support.ts"

/**
 * Promise (Start, stop, upgrade): An upgrade under 30 requests a second, with a long transaction in the way: no
 * request fails at the replica of the previous version, and it continues to create jobs. A migration gives way to
 * requests and tries again; an index whose build was interrupted is built again.
 */

/**
 * Promise (Start, stop, upgrade): An upgrade gives way to requests, tries again after a deadlock, and says the
 * SQLSTATE and what to do.
 */

/** A made-up release after 1.0: it changes the two tables that every request of the load uses, and builds an index. */
const later = Effect.gen(function* () {
  const released = yield* yield* Migrations.Known
  const sql = SqlClient.SqlClient
  const change = Effect.flatMap(sql, (sql) =>
    Effect.andThen(
      sql`ALTER TABLE jobs ADD COLUMN colour text, ADD COLUMN weight integer NOT NULL DEFAULT 0`,
      sql`ALTER TABLE orgs ADD COLUMN colour text`,
    ),
  )
  const index = { name: "jobs_by_colour", table: "jobs", on: "(org_id, colour, id)" }
  return Effect.succeed([
    ...released,
    { id: released.length + 1, name: "colours", load: Effect.succeed({ default: change }) },
    { id: released.length + 2, name: "colours_index", load: Effect.succeed({ indexes: [index] }) },
  ])
})

// Seen failing without lock_timeout and retries: a request of the old replica is the victim of the deadlock, or waits 4
// s and is 503.
it.live("an upgrade under 30 requests a second: no request fails at the old replica, which works on", function* () {
  const url = yield* freshPostgres()
  const old = yield* startService(onPostgres(url).environment)
  const { json } = yield* old.send("POST", "/api/v0/orgs", { json: { name: "o" } })
  const { orgId } = json as { readonly orgId: string }
  const made = yield* old.send("POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" } })
  const { key } = made.json as { readonly key: string }
  const create = Effect.map(
    old.send("POST", "/v1/jobs/create", { json: { workflow: "w" }, headers: { "x-api-key": key } }),
    ({ status }) => status,
  )
  const statuses: Array<number> = []
  const load = Effect.forkScoped(
    Effect.forever(
      Effect.andThen(
        Effect.forkChild(Effect.tap(create, (status) => Effect.sync(() => statuses.push(status)))),
        Effect.sleep("33 millis"),
      ),
    ),
  )
  const sql = yield* adminClient(url)
  yield* load
  yield* until(
    "the load",
    Effect.sync(() => statuses.length),
    (count) => count > 30,
  )
  // A report of the operator: it reads orgs and jobs for some seconds, so that the migration has to give way.
  const report = yield* Effect.forkScoped(
    sql.withTransaction(sql`SELECT pg_sleep(7), (SELECT count(*) FROM orgs), (SELECT count(*) FROM jobs)`),
  )
  const upgrade = Effect.provide(
    Effect.flatMap(Database, ({ ready }) => ready),
    Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }),
  ).pipe(Effect.provideServiceEffect(Migrations.Known, later))
  // Two new replicas.
  yield* Effect.all([upgrade, upgrade], { concurrency: 2 })
  yield* Fiber.join(report)
  const reached = statuses.length
  yield* until(
    "requests after the upgrade",
    Effect.sync(() => statuses.length),
    (count) => count > reached + 30,
  )
  assert.deepStrictEqual([...new Set(statuses)], [200])
  assert.deepStrictEqual(yield* sql`SELECT migration_id AS id, name FROM gatehouse_migrations ORDER BY 1`, [
    { id: 1, name: "schema" },
    { id: 2, name: "colours" },
    { id: 3, name: "colours_index" },
  ])
  assert.strictEqual((yield* old.send("GET", "/readyz")).status, 200)
})
