import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Delivery } from "#src/domain/webhooks/DeliveryLog.ts"
import { readFileSync, writeFileSync } from "node:fs"
import { adminClient, freshPostgres } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { type Service, startService } from "../../support/process.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { encryptionKey } from "../../support/server.ts"
import { until } from "../../support/wait.ts"

/**
 * Promise (Start, stop, upgrade): This version starts on a database that release 1.0 filled, and continues with what
 * was pending there.
 */

/** What release 1.0 left in a database. Migration 1, which is final from then on, makes the tables. */
const file = new URL("../../fixtures/release-1.0.json", import.meta.url)
const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as {
  readonly version: string
}
const advice =
  parseInt(version, 10) < 1
    ? "Migration 1 has changed. Make the data of the release again: run this test with UPDATE_RELEASE=1, then oxfmt"
    : "Migration 1 is final since 1.0: write migration 2 (CONTRIBUTING.md, Write a migration)"

interface Release {
  /** The checksum of migration 1. */
  readonly checksum: string
  /** What the service answered: an API key of the org, and ids. */
  readonly made: Readonly<
    Record<"key" | "orgId" | "projectId" | "endpointId" | "delivered" | "pending" | "queued" | "finished", string>
  >
  /** Rows by table. */
  readonly tables: Readonly<Record<string, ReadonlyArray<object>>>
}

const environment = (url: string) => ({
  DATABASE_URL: url,
  ENCRYPTION_KEY: encryptionKey,
  RETENTION_DAYS: "off",
  AUDIT_RETENTION_DAYS: "off",
  WEBHOOK_RETRY_DELAYS: "1h",
})

const checksumOf = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ checksum: string }>`SELECT checksum FROM gatehouse_migrations WHERE migration_id = 1`,
    ([row]) => row!.checksum,
  )

/** The tables with their columns that can be written. */
const tablesOf = (sql: SqlClient.SqlClient) => sql<{ name: string; columns: string }>`
  SELECT relname AS name, string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns
  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
  WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    AND relname NOT IN ('gatehouse_migrations', 'replicas')
  GROUP BY relname ORDER BY relname`

/** What the test reads of responses. */
type Answer = Readonly<
  Record<"orgId" | "projectId" | "key" | "webhook_endpoint_id" | "event_id" | "job_id" | "status", string>
> & {
  readonly deliveries: ReadonlyArray<Delivery>
}

/** Sends a request that succeeds. */
const caller = (service: Service, key?: string) =>
  Effect.fnUntraced(function* (method: string, path: string, json?: object) {
    const sent = yield* service.send(method, path, {
      ...(json === undefined ? {} : { json }),
      ...(key === undefined ? {} : { headers: { "x-api-key": key } }),
    })
    assert.isBelow(sent.status, 300, `${path}: ${sent.text}`)
    return sent.json as Answer
  })

/** Uses the service as a tenant would, so that each kind of row is there. */
const fill = Effect.gen(function* () {
  const url = yield* freshPostgres()
  const [works, fails] = [yield* makeReceiver(), yield* makeReceiver()]
  fails.behave({ status: 500 })
  const service = yield* startService(environment(url))
  const admin = caller(service)
  const { orgId } = yield* admin("POST", "/api/v0/orgs", { name: "Acme" })
  const { projectId } = yield* admin("POST", "/api/v0/projects", { orgId, name: "Shop" })
  const { key } = yield* admin("POST", `/api/v0/orgs/${orgId}/keys`, { name: "Backend" })
  const call = caller(service, key)
  const secret = { generate_signing_secret: true }
  const { webhook_endpoint_id: endpointId } = yield* call("POST", "/v1/webhooks/create", {
    url: works.url,
    event_types: ["invoice.paid", "job.completed"],
    ...secret,
  })
  yield* call("POST", "/v1/webhooks/create", { url: fails.url, event_types: ["invoice.late"], ...secret })
  yield* call("POST", "/v1/event-types/create", { name: "invoice.paid", description: "An invoice was paid." })
  const { event_id: delivered } = yield* call("POST", "/v1/events/publish", { type: "invoice.paid", data: { id: 1 } })
  const { event_id: pending } = yield* call("POST", "/v1/events/publish", { type: "invoice.late", data: { id: 2 } })
  const { job_id: finished } = yield* call("POST", "/v1/jobs/create", { workflow: "report" })
  yield* call("POST", "/v1/jobs/claim", { workflows: ["report"], limit: 1 })
  yield* call("POST", "/v1/jobs/complete", { job_id: finished, result: { pages: 3 } })
  const { job_id: queued } = yield* call("POST", "/v1/jobs/create", { workflow: "later" })
  yield* call("POST", "/v1/schedules/create", { workflow: "report", cron: "0 4 * * *" })
  yield* Effect.all([works.arrived(2), fails.arrived(1)])
  const sql = yield* adminClient(url)
  const attempts = sql`SELECT FROM deliveries WHERE state = 'delivered' UNION ALL SELECT FROM delivery_attempts`
  yield* until("the attempts", attempts, (rows) => rows.length === 3)
  yield* service.end("SIGTERM")
  const tables: Record<string, ReadonlyArray<object>> = {}
  for (const { columns, name } of yield* tablesOf(sql)) {
    const [row] = yield* sql<{ rows: ReadonlyArray<object> }>`
      SELECT coalesce(json_agg(t), '[]') AS rows FROM (SELECT ${sql.literal(columns)} FROM ${sql(name)}) AS t`
    if (row!.rows.length > 0) tables[name] = row!.rows
  }
  const made = { key, orgId, projectId, endpointId, delivered, pending, queued, finished }
  return { checksum: yield* checksumOf(sql), made, tables } as Release
})

it.live("starts on a database that release 1.0 filled, and continues with what was pending", function* () {
  if (process.env.UPDATE_RELEASE !== undefined) {
    writeFileSync(file, `${JSON.stringify(yield* Effect.scoped(fill), null, 1)}\n`)
  }
  const { checksum, made, tables } = JSON.parse(readFileSync(file, "utf8")) as Release
  const url = yield* freshPostgres()
  const sql = yield* adminClient(url)
  assert.strictEqual(yield* checksumOf(sql), checksum, advice)
  for (const { columns, name } of yield* tablesOf(sql)) {
    yield* sql`
        INSERT INTO ${sql(name)} (${sql.literal(columns)}) SELECT ${sql.literal(columns)}
        FROM json_populate_recordset(NULL::${sql(name)}, ${JSON.stringify(tables[name] ?? [])}::text::json)`
  }
  // Not due before the endpoint has another address.
  yield* sql`UPDATE pending_deliveries SET due_at = now() + interval '1 hour'`
  const receiver = yield* makeReceiver()
  const service = yield* startService(environment(url))
  const call = caller(service, made.key)
  const { deliveries } = yield* call("POST", "/v1/webhooks/deliveries/list", { event_id: made.delivered })
  assert.deepInclude(deliveries[0]!, { state: "delivered", attempts: 1, last_status: 200 })
  const pending = yield* call("POST", "/v1/webhooks/deliveries/list", { event_id: made.pending })
  const { delivery_id, webhook_endpoint_id: id } = pending.deliveries[0]!
  assert.deepInclude(pending.deliveries[0]!, { state: "pending", attempts: 1, last_status: 500 })
  yield* call("POST", "/v1/webhooks/update", { id, url: receiver.url })
  yield* call("POST", "/v1/webhooks/deliveries/retry", { delivery_id })
  yield* receiver.arrived(1)
  assert.strictEqual((yield* call("POST", "/v1/jobs/get", { job_id: made.finished })).status, "completed")
  yield* call("POST", "/v1/jobs/cancel", { job_id: made.queued })
  yield* call("POST", "/v1/webhooks/update", { id: made.endpointId, url: receiver.url })
  yield* call("POST", "/v1/events/publish", { type: "invoice.paid", data: { id: 3 } })
  yield* receiver.arrived(2)
  const validated = yield* caller(service)("POST", "/api/v0/keys/validate", { key: made.key })
  assert.deepInclude(validated, { orgId: made.orgId })
})
