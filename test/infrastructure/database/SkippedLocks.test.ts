import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { globSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"
import { endSweeps, passes } from "../../faults/pairs/table.ts"
import { makeTenant } from "../../http/tenants.ts"
import { adminClient } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { onPostgres, type Services, TestServer } from "../../support/server.ts"

/** Background work passes over a row that somebody holds: a stuck transaction of one org stops nobody's work. */

const old = "now() - interval '900 days'"

/** Passes, the table whose rows are held, and what makes rows of it due. */
const held: ReadonlyArray<readonly [pass: string, table: string, due: string]> = [
  [
    "idempotency keys expire",
    "idempotency_keys",
    `INSERT INTO idempotency_keys VALUES ('', 'c', 'o', 'k', '{}', ${old})`,
  ],
  [
    "sessions expire",
    "sessions",
    `INSERT INTO sessions (org_id, hash, id, kind, credential_hash, created_at, expires_at)
     VALUES ('', 'h', 's', 'key', 'c', ${old}, ${old})`,
  ],
  ["old uses of keys are removed", "key_usage", "INSERT INTO key_usage VALUES ('', 'k', 1, 0, 0, 0, 0)"],
  [
    "old questions are removed",
    "docs_questions",
    `INSERT INTO docs_questions VALUES ('', 'p', 'q', ${old}, '?', 't', false, NULL)`,
  ],
  ["leases expire", "jobs", `UPDATE jobs SET lease_expires_at = ${old} WHERE status = 'running'`],
  ["leases expire", "job_keys", `UPDATE jobs SET lease_expires_at = ${old} WHERE status = 'running'`],
  ["jobs expire", "jobs", `UPDATE jobs SET expires_at = ${old} WHERE status = 'queued' AND expires_at IS NOT NULL`],
  ["delayed jobs are queued", "jobs", `UPDATE jobs SET run_at = ${old} WHERE run_at IS NOT NULL`],
  ["schedules run", "job_schedules", `UPDATE job_schedules SET next_at = ${old}`],
  ["alerts look", "alerts", `UPDATE alerts SET due_at = ${old}`],
  ["deliveries are claimed and recorded", "pending_deliveries", `UPDATE pending_deliveries SET due_at = ${old}`],
  ["deliveries are claimed and recorded", "endpoint_throttles", `UPDATE pending_deliveries SET due_at = ${old}`],
  [
    "times of deliveries are corrected",
    "pending_deliveries",
    `UPDATE pending_deliveries SET due_at = now() + interval '900 days'`,
  ],
  [
    "sweeps run",
    "sweeps",
    "INSERT INTO sweeps (id, org_id, kind, created_at) VALUES ('held', 'nobody', 'erase', now())",
  ],
]

/** The statements that pass over held rows, by file. A new one is in the list of passes, or in a test below. */
const statements = {
  // Removes intervals of activity, which nobody else changes any more.
  "activity/activitySql.ts": 1,
  "alerts/alertsSql.ts": 1,
  "docs/docsQuestionsSql.ts": 1,
  "idempotency/idempotencySql.ts": 1,
  "jobs/claimJobs.ts": 3,
  "jobs/claimLimitedJobs.ts": 1,
  "jobs/jobsSql.ts": 1,
  "keys/keyUsageSql.ts": 1,
  "queue/pickDue.ts": 1,
  "sessions/sessionsSql.ts": 1,
  "sweeps/erase.ts": 3,
  "sweeps/sweepsSql.ts": 1,
  "webhooks/claimDeliveries.ts": 5,
  "webhooks/deliveryQueueSql.ts": 1,
}

it("every statement that passes over held rows is known here", () => {
  const folder = fileURLToPath(new URL("../../../src/infrastructure/", import.meta.url))
  const found = globSync("**/*.ts", { cwd: folder, exclude: ["**/migrations/**"] }).flatMap((file) => {
    const count = readFileSync(folder + file, "utf8").split("SKIP LOCKED").length - 1
    return count === 0 ? [] : [[file, count] as const]
  })
  expect(Object.fromEntries(found)).toEqual(statements)
})

/** A tenant that has something for each pass. */
const makeWork = Effect.gen(function* () {
  const tenant = yield* makeTenant()
  const { call, orgId } = tenant
  const { send } = yield* TestServer
  yield* call("workflows/set", { workflow: "limited", concurrency: 2 })
  for (const workflow of ["plain", "limited"]) {
    yield* call("jobs/create", { workflow, unique: { key: "u", states: ["queued", "running"] } })
    yield* call("jobs/claim", { workflows: [workflow], limit: 1 })
    yield* call("jobs/create", { workflow, expires_in_seconds: 3600 })
    yield* call("jobs/create", { workflow, run_at: new Date(Date.now() + 3_600_000).toISOString() })
  }
  yield* call("schedules/create", { workflow: "plain", cron: "0 0 1 1 *", timezone: "UTC" })
  const target = { name: "a", condition: "endpoint_deactivated", target: "slack", url: "https://localhost:9/" }
  yield* send("POST", `/api/v0/orgs/${orgId}/alerts`, { json: target })
  yield* tenant.endpoint("https://localhost:9/", { max_per_second: 5 })
  yield* call("events/publish", { type: "t.t", data: 1 })
  return tenant
})

/** Runs an effect while another transaction holds the rows of a table. */
const whileHeld = Effect.fnUntraced(function* <A, E, R>(table: string, effect: Effect.Effect<A, E, R>) {
  const { sql } = yield* TestServer
  const [database] = yield* sql<{ name: string }>`SELECT current_database() AS name`
  const other = yield* adminClient(new URL(database!.name, inject("postgresUrl")).href)
  return yield* other.withTransaction(
    Effect.gen(function* () {
      expect(yield* other.unsafe(`SELECT FROM ${table} FOR UPDATE`)).not.toEqual([])
      return yield* effect
    }),
  )
}, Effect.scoped)

layer(TestServer.layer(onPostgres(), { endlessSleeps: true }), { excludeTestServices: true })(
  "rows that are held",
  (it) => {
    it.effect.each(held)("%s, while somebody holds rows of %s", function* ([name, table, due]) {
      const server = yield* TestServer
      const { orgId } = yield* makeWork
      yield* server.sql.unsafe(due)
      const pass = passes[name]!({ orgId }, server) as Effect.Effect<unknown, unknown, Services>
      yield* whileHeld(table, Effect.provideContext(pass, server.services!))
    })

    it.effect.each(["jobs", "pending_deliveries", "events", "webhook_endpoints"])(
      "an org is erased, while somebody holds rows of %s",
      function* (table) {
        const server = yield* TestServer
        const { orgId } = yield* makeWork
        yield* server.send("DELETE", `/api/v0/orgs/${orgId}`)
        const pass = endSweeps({}, server) as Effect.Effect<unknown, unknown, Services>
        yield* whileHeld(table, Effect.provideContext(pass, server.services!))
      },
    )

    it.effect.each([["plain"], ["limited"], ["plain", "other"]])(
      "a claim of jobs of %j takes none",
      function* (workflows) {
        const { ask, call } = yield* makeWork
        const claim = ask("jobs/claim", { workflows })
        const { json, status } = yield* whileHeld("jobs", claim)
        expect([status, json]).toMatchObject([200, { jobs: [] }])
        expect((yield* call("jobs/claim", { workflows }))["jobs"]).toHaveLength(1)
      },
    )
  },
)
