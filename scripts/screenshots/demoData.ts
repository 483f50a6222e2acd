import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { type Call, caller, type Json, makeReceiver, until } from "./calls.ts"
import { makeDocs } from "./demoDocs.ts"

const eventTypes = [
  "invoice.paid",
  "invoice.created",
  "invoice.paid",
  "customer.updated",
  "invoice.paid",
  "refund.made",
]
const workflows = ["nightly-report", "import-products", "resize-images", "send-digest"]

/** Endpoints of a shop's customers: one that works, one that fails, one that is gone. */
const makeEndpoints = Effect.fnUntraced(function* (call: Call, orgId: string) {
  const good = yield* makeReceiver((_, response) => void response.end('{"received":true}'))
  const bad = yield* makeReceiver((_, response) => {
    response.writeHead(503, { "content-type": "application/json" })
    response.end('{"error":"The database is in maintenance until 04:00"}')
  })
  const gone = yield* makeReceiver((_, response) => void response.writeHead(410).end())
  const make = (url: string, more: Json) =>
    Effect.map(
      call(orgId, "POST", "/v1/webhooks/create", {
        url,
        signing_secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ...more,
      }),
      ({ webhook_endpoint_id }) => webhook_endpoint_id!,
    )
  return {
    [yield* make(good.url, { description: "Billing", event_types: ["invoice.*", "refund.*", "job.*"] })]:
      "https://billing.northwind.example/hooks/gatehouse",
    [yield* make(bad.url, { description: "Customer data", retry_delays: [5, 300, 1800, 7200] })]:
      "https://crm.northwind.example/webhooks",
    [yield* make(good.url, { description: "Data warehouse", max_per_second: 50, signature: "ed25519" })]:
      "https://events.warehouse.example/v2/ingest",
    [yield* make(gone.url, { description: "The old shop", event_types: ["customer.*"] })]:
      "https://old-shop.northwind.example/webhook.php",
  }
})

const makeWork = Effect.fnUntraced(function* (call: Call, orgId: string) {
  const limits = { concurrency: 20, concurrency_per_key: 1, retry: { attempts: 5, delays: [5, 60, 600] } }
  yield* call(orgId, "POST", "/v1/workflows/set", { workflow: "send-digest", ...limits })
  for (let n = 0; n < 48; n++) {
    const data = { id: `in_${8241 + n}`, customer: "Fabrikam", amount: 1990 + n * 250, currency: "EUR" }
    yield* call(orgId, "POST", "/v1/events/publish", { type: eventTypes[n % eventTypes.length]!, data })
  }
  for (let n = 0; n < 14; n++) {
    const workflow = workflows[n % workflows.length]!
    const { job_id } = yield* call(orgId, "POST", "/v1/jobs/create", {
      workflow,
      input: { shop: "northwind", page: n },
    })
    yield* call(orgId, "POST", "/v1/jobs/claim", { workflow })
    const lines = [{ text: `Page ${n} of the shop northwind` }, { text: "Two prices are missing", level: "warn" }]
    yield* call(orgId, "POST", "/v1/jobs/log", { job_id, attempt: 1, lines })
    yield* call(orgId, "POST", "/v1/jobs/step", { job_id, attempt: 1, name: "read-prices", result: { rows: 118 } })
    const [path, report] =
      n % 3 === 2
        ? ["fail", { error: n % 2 === 0 ? "The export has no rows" : "connect ECONNREFUSED 10.0.4.7:5432" }]
        : ["complete", { result: { rows: 120 + n * 7 } }]
    yield* call(orgId, "POST", `/v1/jobs/${path}`, { job_id, ...report })
  }
  yield* call(orgId, "POST", "/v1/jobs/create", { workflow: "import-products", input: { page: 15 } })
  yield* call(orgId, "POST", "/v1/jobs/claim", { lease_seconds: 3600 })
  yield* call(orgId, "POST", "/v1/jobs/create", {
    workflow: "resize-images",
    input: { folder: "spring" },
    priority: 10,
  })
  for (const [workflow, cron] of [
    ["nightly-report", "0 4 * * *"],
    ["send-digest", "30 7 * * 1"],
    ["import-products", "*/15 * * * *"],
  ]) {
    yield* call(orgId, "POST", "/v1/schedules/create", { workflow, cron, timezone: "Europe/Berlin", overlap: "skip" })
  }
})

/**
 * Spreads what happened in seconds over a day, as if the service had run that long. The interface cannot make a past,
 * so this writes into the tables; nothing but pictures is made of it.
 */
const makePast = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, urls: Readonly<Record<string, string>>) {
  for (const [id, url] of Object.entries(urls)) yield* sql`UPDATE webhook_endpoints SET url = ${url} WHERE id = ${id}`
  yield* sql`
    UPDATE events SET created_at = now() - old.hours * interval '1 hour'
    FROM (SELECT id, 20 * (1 - row_number() OVER (ORDER BY id)::float8 / count(*) OVER ()) AS hours FROM events) AS old
    WHERE old.id = events.id`
  yield* sql`
    UPDATE deliveries d SET created_at = e.created_at, updated_at = e.created_at,
      attempt_started_at = e.created_at + interval '90 ms' FROM events e WHERE e.id = d.event_id`
  yield* sql`
    UPDATE pending_deliveries d SET created_at = e.created_at, updated_at = e.created_at FROM events e
      WHERE e.id = d.event_id`
  yield* sql`
    UPDATE finished_jobs j SET finished_at = e.created_at, created_at = e.created_at - interval '94 seconds'
    FROM events e WHERE e.job_id = j.id`
  yield* sql`
    UPDATE webhook_endpoints SET created_at = now() - interval '40 days', updated_at = now() - interval '3 days',
      failing_since = failing_since - interval '3 hours', deactivated_at = deactivated_at - interval '19 hours'`
  // One delivery has a story: three attempts, and a fourth to come.
  yield* sql`
    UPDATE pending_deliveries SET attempts = 3, due_at = now() + interval '9 minutes',
      created_at = created_at - interval '21 minutes'
    WHERE delivery_id = (SELECT max(delivery_id) FROM pending_deliveries WHERE attempts > 0)`
  yield* sql`
    INSERT INTO delivery_attempts (delivery_id, org_id, number, started_at, duration_ms, status)
    SELECT delivery_id, org_id, n, created_at + after * interval '1 second', 40 + 31 * n, 503
    FROM (SELECT * FROM pending_deliveries WHERE attempts = 3) AS d,
      (VALUES (1, 0.09), (2, 5.4), (3, 297)) AS made (n, after)
    ON CONFLICT (org_id, delivery_id, number) DO UPDATE SET started_at = excluded.started_at`
})

/** Counts of the last hour, day and month, in waves as a day has them. */
const makeCounts = (sql: SqlClient.SqlClient, orgIds: ReadonlyArray<string>) =>
  sql`
    INSERT INTO activity_counts (org_id, every, at, kind, outcome, count)
    SELECT org, every, date_trunc(every, now()) - n * ('1 ' || every)::interval, kind, outcome,
      greatest(0, round(size * share * weight * (1 + 0.5 * sin(n / 3.0) + 0.2 * sin(n * 2.7))))::bigint
    FROM (VALUES ('', 1.0), (${orgIds[0]!}, 0.6), (${orgIds[1]!}, 0.3)) AS orgs (org, share),
      (VALUES ('minute', 59, 1), ('hour', 23, 55), ('day', 29, 1300)) AS intervals (every, last, size),
      (VALUES ('deliveries', 'delivered', 42), ('deliveries', 'retried', 3), ('deliveries', 'failed', 1),
        ('validations', 'valid', 900), ('validations', 'limited', 20), ('validations', 'invalid', 12),
        ('jobs', 'completed', 18), ('jobs', 'failed', 1)) AS kinds (kind, outcome, weight),
      LATERAL generate_series(0, last) n
    ON CONFLICT (org_id, every, at, kind, outcome) DO UPDATE SET count = excluded.count`

/** Attempts of endpoints in the last day and month, as fast and as good as their receivers. */
const makeAttempts = (sql: SqlClient.SqlClient, orgId: string, good: string, bad: string) =>
  sql`
    INSERT INTO endpoint_attempts (org_id, endpoint_id, every, at, cause, bucket, count, last_at, last_status)
    SELECT ${orgId}, endpoint, every, date_trunc(every, now()) - n * ('1 ' || every)::interval, cause, bucket, size * weight,
      now() - interval '4 hours', 503
    FROM (VALUES (${good}, '', 2, 90), (${good}, '', 4, 8), (${good}, '503', 5, 1),
        (${bad}, '', 3, 40), (${bad}, '503', 1, 9), (${bad}, 'timeout', 10, 2)) AS kinds (endpoint, cause, bucket, weight),
      (VALUES ('hour', 23, 1), ('day', 29, 24)) AS intervals (every, last, size), LATERAL generate_series(0, last) n
    ON CONFLICT (org_id, endpoint_id, every, at, cause, bucket) DO UPDATE SET count = excluded.count`

/** Validates a key 2,000 times, and waits until the replica has said how long requests take. */
const measure = Effect.fnUntraced(function* (call: Call, key: string) {
  const validation = call(undefined, "POST", "/api/v0/keys/validate", { key })
  yield* Effect.replicateEffect(validation, 2_000, { concurrency: 8, discard: true })
  const replicas = call(undefined, "GET", "/api/v0/replicas") as unknown as Effect.Effect<{
    readonly replicas: ReadonlyArray<{ readonly figures: { readonly requests: { readonly perMinute: number } } | null }>
  }>
  yield* until(
    Effect.map(replicas, ({ replicas }) => replicas.some(({ figures }) => (figures?.requests.perMinute ?? 0) > 100)),
  )
})

/** Fills a service with what a small platform has after some weeks. Returns the ids that pages are opened with. */
export const makeDemoData = Effect.fnUntraced(function* (url: string, sql: SqlClient.SqlClient) {
  const call = caller(url)
  const orgIds: Array<string> = []
  let docsId = ""
  let validKey = ""
  for (const name of ["Northwind", "Contoso", "Fabrikam"]) {
    const { orgId } = yield* call(undefined, "POST", "/api/v0/orgs", { name })
    orgIds.push(orgId!)
    for (const project of ["storefront", "docs"]) {
      const { projectId } = yield* call(undefined, "POST", "/api/v0/projects", { name: project, orgId: orgId! })
      const { key } = yield* call(undefined, "POST", "/api/v0/keys", { name: "gateway", projectId: projectId! })
      validKey = key!
      if (name === "Northwind" && project === "docs") docsId = yield* makeDocs(url, call, sql, projectId!, key!)
    }
  }
  const orgId = orgIds[0]!
  const urls = yield* makeEndpoints(call, orgId)
  yield* makeWork(call, orgId)
  const list = (json: Json) =>
    Effect.map(
      call(orgId, "POST", "/v1/webhooks/deliveries/list", json),
      ({ deliveries }) => deliveries as unknown as ReadonlyArray<Json>,
    )
  // What works is delivered, and the one that fails has failed twice.
  const [first, failing, third, gone] = Object.keys(urls)
  for (const id of [first, third]) {
    const pending = list({ state: "pending", webhook_endpoint_id: id!, limit: 1 })
    yield* until(Effect.map(pending, (rows) => rows.length === 0))
  }
  const tried = list({ state: "pending", webhook_endpoint_id: failing!, limit: 100 })
  yield* until(Effect.map(tried, (rows) => rows.some(({ attempts }) => Number(attempts) > 1)))
  yield* makePast(sql, urls)
  yield* makeCounts(sql, orgIds)
  yield* makeAttempts(sql, orgId, first!, failing!)
  yield* measure(call, validKey)
  const [delivery] = (yield* list({ state: "pending", limit: 100 })).filter(({ attempts }) => attempts === 3)
  const { jobs } = yield* call(orgId, "POST", "/v1/jobs/list", { status: "completed", limit: 1 })
  const { schedules } = yield* call(orgId, "POST", "/v1/schedules/list", {})
  return {
    orgId,
    docsId,
    endpointId: first!,
    failingId: failing!,
    goneId: gone!,
    deliveryId: String(delivery?.["delivery_id"]),
    jobId: String((jobs as unknown as ReadonlyArray<Json>)[0]!["job_id"]),
    scheduleId: String((schedules as unknown as ReadonlyArray<Json>)[0]!["schedule_id"]),
  }
})
