import { assert } from "@effect/vitest"
import { type DateTime, Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { rowCost } from "#src/domain/orgs/StoredBytes.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { measureBytes as measure, measuredTables } from "#src/infrastructure/orgs/OrgUsageWorker.ts"
import { subtractStoredBytes } from "#src/infrastructure/orgs/enforceLimits.ts"
import { refusal, updateOrg } from "../../contract/orgs/orgLimits.ts"
import { untilWaiting } from "../../contract/meet.ts"
import { at, insertOrg, insertProject, newEntry, newKey } from "../../contract/support.ts"
import { nextTime, prepare, publishAt, removeOld } from "../../contract/retention/retention.ts"
import {
  attempt,
  cancelJob,
  claim,
  completed,
  failed,
  finish,
  insertEndpoint,
  insertJob,
  plus,
  publish,
  record,
  updateEndpoint,
} from "../../contract/webhooks/webhookSupport.ts"
import { layer } from "../../support/it.ts"
import { until } from "../../support/wait.ts"
import { atOther, refresh, replicas, usedBy } from "./orgLimitsSupport.ts"

/** Promise (What an endpoint asks for) */

/** The bytes of all tables, with their indexes. */
const size = SqlClient.SqlClient.use((sql) =>
  Effect.map(
    sql<{ bytes: number }>`
      SELECT sum(pg_total_relation_size(oid))::float8 AS bytes FROM pg_class
      WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`,
    ([row]) => row!.bytes,
  ),
)

const measureBytes = Effect.flatten(measure)

/** Returns a function that stores something, and compares how much the stored bytes and the database grow. */
const growthOf = (orgId: string) =>
  Effect.fnUntraced(function* <A, E, R>(what: string, stores: Effect.Effect<A, E, R>) {
    const sql = yield* SqlClient.SqlClient
    const [before, countedBefore] = [yield* size, (yield* usedBy(orgId)).storedBytes]
    yield* stores
    yield* sql`VACUUM`
    const [bytes, counted] = [(yield* size) - before, (yield* usedBy(orgId)).storedBytes - countedBefore]
    assert.isAbove(counted, bytes / 2, `${what} take ${bytes} bytes`)
    assert.isBelow(counted, bytes * 2, `${what} take ${bytes} bytes`)
  })

layer(replicas, { excludeTestServices: true })("limits of stored bytes, on PostgreSQL", (it) => {
  // Seen failing: 12 results of 3,000 bytes were stored where one fits, and as many inputs of retries.
  it.effect("hold for reports and retries that come at once, with the events of the reports", function* () {
    const { orgId } = yield* insertOrg()
    const jobIds = yield* Effect.replicateEffect(insertJob(orgId), 12)
    const long = "x".repeat(3_000)
    const most = (yield* usedBy(orgId)).storedBytes + 10_000
    yield* updateOrg(orgId, { limits: { storedBytes: most } })
    const atOnce = <R>(one: (jobId: string) => Effect.Effect<unknown, unknown, R>) =>
      Effect.forEach(jobIds, (jobId) => refusal(one(jobId)), { concurrency: "unbounded" })
    const reported = yield* atOnce((jobId) => finish(orgId, jobId, completed(long), at(1)))
    assert.strictEqual(reported.filter((outcome) => outcome === "ok").length, 1)
    assert.isAtMost((yield* usedBy(orgId)).storedBytes, most)

    yield* updateOrg(orgId, { limits: { storedBytes: null } })
    yield* Effect.forEach(jobIds, (jobId) => Effect.ignore(finish(orgId, jobId, failed("boom"), at(2))))
    const more = (yield* usedBy(orgId)).storedBytes + 10_000
    yield* updateOrg(orgId, { limits: { storedBytes: more } })
    const retried = yield* atOnce((jobId) =>
      JobRepository.use((jobs) => jobs.retry(orgId, jobId, long, at(3), newEntry({ action: "job.retry" }))),
    )
    assert.strictEqual(retried.filter((outcome) => outcome === "ok").length, 3)
    assert.isAtMost((yield* usedBy(orgId)).storedBytes, more)
  })

  it.effect("hold at once for what this replica stores, and for other replicas once it is written", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { storedBytes: 2_000 } })
    const store = insertJob(orgId, { input: "x".repeat(58) })
    const size = rowCost.job + 60
    const written = sql`SELECT stored_bytes::int AS n FROM org_usage WHERE org_id = ${orgId}`
    assert.strictEqual(yield* refusal(store), "ok")
    assert.strictEqual(yield* refusal(store), "2000 stored bytes")
    assert.deepStrictEqual(yield* written, [{ n: 0 }])
    yield* refresh
    assert.deepStrictEqual(yield* written, [{ n: size }])
    assert.strictEqual(yield* refusal(store), "2000 stored bytes")
    assert.strictEqual(yield* atOther(refusal(store)), "2000 stored bytes")
    // Removed bytes are subtracted in the transaction that removes them, never below zero.
    const subtract = (bytes: number) =>
      subtractStoredBytes(
        sql,
        new Map([
          [orgId, bytes],
          ["nobody", 1],
        ]),
      )
    yield* sql.withTransaction(Effect.andThen(subtract(500), Effect.fail("undone"))).pipe(Effect.ignore)
    assert.deepStrictEqual(yield* written, [{ n: size }])
    yield* subtract(500)
    assert.deepStrictEqual(yield* written, [{ n: size - 500 }])
    assert.strictEqual(yield* refusal(store), "ok")
    yield* subtract(10_000)
    yield* refresh
    assert.deepStrictEqual(yield* written, [{ n: size }])
  })

  it.effect("count no delivery that a filter of its endpoint prevents", function* () {
    const { orgId } = yield* insertOrg()
    for (const n of [1, 2]) yield* insertEndpoint(orgId, { filter: { any: [{ "data.n": n }, { "result.n": n }] } })
    const grown = Effect.fnUntraced(function* <A, E, R>(stores: Effect.Effect<A, E, R>) {
      const before = (yield* usedBy(orgId)).storedBytes
      yield* stores
      return (yield* usedBy(orgId)).storedBytes - before
    })
    const body = (n: number) => ({ body: `{"event":"a.b","data":{"n":${n}}}` })
    const [one, none] = [
      yield* grown(publish(orgId, "a.b", at(0), body(1))),
      yield* grown(publish(orgId, "a.b", at(0), body(3))),
    ]
    assert.strictEqual(one - none, rowCost.delivery)
    const [job, other] = [yield* insertJob(orgId), yield* insertJob(orgId)]
    const [ofOne, ofNone] = [
      yield* grown(finish(orgId, job, completed({ n: 1 }), at(0))),
      yield* grown(finish(orgId, other, completed({ n: 3 }), at(0))),
    ]
    assert.strictEqual(ofOne - ofNone, rowCost.delivery)
  })

  // Seen failing: the event was stored, and its bytes did not count.
  it.effect("count an event whose publisher hangs up before it is stored", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const [locked, waits, gone] = [
      yield* Deferred.make<void>(),
      yield* Deferred.make<void>(),
      yield* Deferred.make<void>(),
    ]
    const holder = yield* Effect.gen(function* () {
      yield* sql`LOCK TABLE events IN SHARE MODE`
      yield* Deferred.succeed(locked, undefined)
      yield* untilWaiting(1)
      yield* Deferred.succeed(waits, undefined)
      yield* Deferred.await(gone)
    }).pipe(sql.withTransaction, Effect.forkChild)
    yield* Deferred.await(locked)
    const publishing = yield* Effect.forkChild(publish(orgId, "a.b", at(0), { body: '{"x":1}' }))
    yield* Deferred.await(waits)
    publishing.interruptUnsafe()
    yield* Deferred.succeed(gone, undefined)
    yield* Fiber.join(holder)
    yield* Fiber.await(publishing)
    const busy = sql<{ count: number }>`
        SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()`
    yield* until("the end of the statement", busy, ([row]) => row!.count === 0)
    const [stored] = yield* sql<{ bytes: number }>`
        SELECT coalesce(sum(${rowCost.event}::int + octet_length(body)), 0)::int AS bytes FROM events WHERE org_id = ${orgId}`
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, stored!.bytes)
  })

  it.effect("are kept when a write fails, and forgotten with their org", function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const { orgId } = yield* insertOrg()
    usage.addBytes(orgId, 7)
    usage.addBytes("nobody", 7)
    yield* sql`ALTER TABLE org_usage RENAME TO hidden`
    const failed = yield* Effect.exit(refresh)
    yield* sql`ALTER TABLE hidden RENAME TO org_usage`
    assert.strictEqual(failed._tag, "Failure")
    assert.strictEqual(usage.bytes(orgId), 7)
    yield* refresh
    assert.deepStrictEqual([usage.bytes(orgId), usage.bytes("nobody")], [0, 0])
    assert.strictEqual((yield* usedBy(orgId)).storedBytes, 7)
  })

  // Seen failing without the lock of the org: the row of bytes was written after the erasure, and stayed.
  it.effect("are not written for an org that is being deleted", function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const { orgId } = yield* insertOrg()
    usage.addBytes(orgId, 7)
    const deleted = yield* Deferred.make<void>()
    const deletion = yield* Effect.gen(function* () {
      yield* sql`DELETE FROM orgs WHERE id = ${orgId}`
      yield* Deferred.succeed(deleted, undefined)
      yield* untilWaiting(1)
    }).pipe(sql.withTransaction, Effect.forkChild)
    yield* Deferred.await(deleted)
    yield* refresh
    yield* Fiber.join(deletion)
    assert.deepStrictEqual(yield* sql`SELECT 1 FROM org_usage WHERE org_id = ${orgId}`, [])
  })

  it.effect("shrink when retention removes rows", function* () {
    const sql = yield* SqlClient.SqlClient
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const now = nextTime()
    yield* prepare(now)
    // The text of an event for two endpoints counts once.
    for (let n = 0; n < 2; n++) yield* insertEndpoint(orgId, { active: false })
    for (const key of [null, "key"]) yield* publishAt(orgId, now, key, now, ["a", "bc"])
    yield* publishAt(other.orgId, now)
    const [ended] = yield* sql<{ id: string }>`SELECT id FROM events WHERE org_id = ${orgId} LIMIT 1`
    for (const [n, idempotencyKey] of [null, "key"].entries()) {
      const job = yield* insertJob(orgId, { input: "ñ", idempotencyKey })
      yield* cancelJob(orgId, job, now, { endId: `${ended!.id.slice(0, 25)}${n}` })
    }
    // What stays behind its range is removed by itself.
    const endpoint = yield* insertEndpoint(other.orgId)
    yield* publishAt(other.orgId, now)
    const later = plus(now, 86_400)
    yield* refresh
    const written = (id: string) =>
      Effect.map(
        sql<{ bytes: number }>`SELECT stored_bytes::float8 AS bytes FROM org_usage WHERE org_id = ${id}`,
        ([row]) => row!.bytes,
      )
    const [{ bytes }] = (yield* sql<{ bytes: number }>`
        SELECT sum(octet_length(body))::int AS bytes FROM events WHERE org_id = ${orgId}`) as [{ bytes: number }]
    // The input of each job, the keys of a job and of an event, and the channels of each event.
    const all = 2 * (rowCost.job + 4) + 3 + bytes + 3 + 2 * (rowCost.event + 3 + 2 * rowCost.delivery)
    assert.strictEqual(yield* written(orgId), all)
    yield* removeOld(plus(now, 3_600))
    assert.strictEqual(yield* written(orgId), 0)
    assert.isAbove(yield* written(other.orgId), rowCost.event)
    yield* updateEndpoint(other.orgId, endpoint, later, { active: false })
    yield* removeOld(plus(now, 3_600))
    assert.strictEqual(yield* written(other.orgId), 0)
  })

  // Seen failing without the cost of rows, and without deliveries and attempts: 1 MB counted, and 8 MB used.
  /**
   * Promise (Limits of orgs): The stored bytes of an org are between half and twice what its jobs, events, deliveries
   * and attempts take in the database.
   */
  it.effect("count about what the database stores", function* () {
    const { orgId } = yield* insertOrg()
    const publishMany = (count: number) =>
      Effect.replicateEffect(publish(orgId, "a.b", at(0), { body: '{"x":1}' }), count, { concurrency: 32 })
    const attemptAll = Effect.fnUntraced(function* (now: DateTime.Utc, decision: Parameters<typeof attempt>[1]) {
      const claimed = yield* claim(now)
      yield* record(
        claimed.map((delivery) => attempt(delivery, decision, now, { body: "busy" })),
        now,
      )
      return claimed.length
    })
    const untilNone = { until: (claimed: number) => claimed === 0 }
    const growsLike = growthOf(orgId)
    yield* growsLike("jobs", Effect.replicateEffect(insertJob(orgId, { input: "x" }), 1_000, { concurrency: 32 }))
    yield* growsLike("events", publishMany(1_000))
    yield* Effect.replicateEffect(insertEndpoint(orgId, { active: false, eventTypes: ["*"] }), 5)
    yield* growsLike("deliveries that are skipped", publishMany(300))
    yield* Effect.replicateEffect(insertEndpoint(orgId, { eventTypes: ["*"] }), 5)
    yield* growsLike("deliveries", publishMany(300))
    const attempts = Effect.gen(function* () {
      for (const round of [1, 2, 3]) {
        yield* Effect.repeat(attemptAll(at(round * 1_000), { retryAt: at((round + 1) * 1_000) }), untilNone)
      }
      yield* Effect.repeat(attemptAll(at(4_000), "Delivered"), untilNone)
    })
    // The row of a delivery that has ended is counted when its event is published.
    yield* growsLike("deliveries with their attempts", Effect.andThen(publishMany(300), attempts))
  })

  // Seen failing: only jobs and events had a size.
  it.effect("measure what is stored one by one, and refuse more of it past the limit", function* () {
    const { orgId } = yield* insertOrg()
    const insertKey = Effect.flatMap(newKey({ metadata: { text: "x".repeat(1_000) } }), (key) =>
      ApiKeyRepository.use((keys) => keys.insertForOrg(orgId, key, newEntry())),
    )
    const growsLike = growthOf(orgId)
    const many = <A, E, R>(insert: Effect.Effect<A, E, R>) =>
      Effect.andThen(Effect.replicateEffect(insert, 500, { concurrency: 32 }), measureBytes)
    yield* growsLike("keys", many(insertKey))
    yield* growsLike("projects", many(insertProject(orgId)))
    yield* growsLike("endpoints", many(insertEndpoint(orgId)))
    const { storedBytes } = yield* usedBy(orgId)
    yield* updateOrg(orgId, { limits: { storedBytes } })
    const refusals = Effect.all([
      refusal(insertKey),
      refusal(insertProject(orgId)),
      refusal(insertEndpoint(orgId)),
      refusal(insertJob(orgId)),
    ])
    for (const all of [yield* refusals, yield* atOther(refusals)]) {
      assert.deepStrictEqual(new Set(all), new Set([`${storedBytes} stored bytes`]))
    }
    yield* updateOrg(orgId, { limits: { storedBytes: null } })
    assert.strictEqual(yield* refusal(insertKey), "ok")
  })

  it.effect("have every table of an org's rows", function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ name: string }>`
        SELECT table_name AS name FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name = 'org_id'
          AND NOT (SELECT relispartition FROM pg_class WHERE oid = quote_ident(table_name)::regclass) ORDER BY table_name COLLATE "C"`
    const counted = [
      "jobs",
      "finished_jobs",
      "job_schedules",
      "events",
      "deliveries",
      "delivery_attempts",
      "docs_pages",
    ]
    // As many as there are keys, endpoints or deliveries, or with a bound of their own.
    const others = [
      ...["key_counters", "key_usage", "endpoint_throttles", "endpoint_attempts", "failing_callbacks"],
      ...["event_keys", "job_keys", "idempotency_keys", "pending_deliveries", "sweeps", "activity_counts"],
      // While the org moves.
      ...["org_moves", "moved_rows"],
      ...["org_owners", "org_usage", "org_signing_keys", "sessions", "docs_questions"],
    ]
    assert.deepStrictEqual(
      rows.map(({ name }) => name),
      [...counted, ...Object.keys(measuredTables), ...others].toSorted(),
    )
  })
})
