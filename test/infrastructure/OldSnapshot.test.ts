import { assert } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import { insertMany } from "../contract/webhooks/deliveriesAtScale.ts"
import { insertOrg } from "../contract/support.ts"
import {
  attempt,
  claim,
  completed,
  finish,
  insertEndpoint,
  insertJob,
  look,
  plus,
  publish,
  record,
} from "../contract/webhooks/webhookSupport.ts"
import * as crypto from "../fakes/crypto.ts"
import { databases } from "../support/databases.ts"
import { layer } from "../support/it.ts"

/** Promise (Dumps and old snapshots) */

const world = Layer.mergeAll(
  DeliveryQueueSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer), Layer.provideMerge(databases.postgres))

/** Keeps a transaction with an old snapshot open while `effect` runs, so that no dead row can be removed. */
const besideOldSnapshot = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const begun = yield* Deferred.make<void>()
    const ended = yield* Deferred.make<void>()
    const forgotten = Effect.gen(function* () {
      yield* sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`
      yield* sql`SELECT 1`
      yield* Deferred.succeed(begun, undefined)
      yield* Deferred.await(ended)
    }).pipe(sql.withTransaction)
    yield* Effect.forkChild(forgotten)
    yield* Deferred.await(begun)
    return yield* Effect.ensuring(effect, Deferred.succeed(ended, undefined))
  })

/** Inserts deliveries at the head of the queue and in the backlog of the lane, and deletes them. */
const leaveDead = Effect.fnUntraced(function* (orgId: string, endpoint: string, now: DateTime.Utc, count: number) {
  const sql = yield* SqlClient.SqlClient
  yield* insertMany({ orgId, endpoint, state: "pending", count, now: DateTime.toDateUtc(plus(now, -3_600)) })
  yield* sql`UPDATE pending_deliveries SET backlogged = true WHERE lane = ${endpoint}`
  yield* sql`DELETE FROM pending_deliveries WHERE lane = ${endpoint}`
  yield* sql`DELETE FROM deliveries WHERE endpoint_id = ${endpoint}`
  // As autovacuum does: a plan is made for a table without rows.
  yield* sql`ANALYZE pending_deliveries`
})

/** The pages that statements in the transaction read. */
const pagesOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const read = Effect.map(
      sql<{ pages: number }>`
        SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::int AS pages FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`,
      ([row]) => row!.pages,
    )
    const before = yield* read
    yield* effect
    return (yield* read) - before
  }).pipe((counting) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(counting)))

/** Deliveries that have left the queue, and whose entries an old snapshot keeps. */
const dead = 20_000
/** Claims; returns the events of the org's deliveries. */
const claimOf = (orgId: string, now: DateTime.Utc) =>
  Effect.map(claim(now), (claimed) => claimed.filter((one) => one.orgId === orgId).map(({ eventId }) => eventId))

/** Claims a job of the org until `isDone`; a look runs beside the claims. Fails after five seconds. */
const claimJobUntil = Effect.fnUntraced(function* (
  orgId: string,
  now: DateTime.Utc,
  isDone: (id: string | undefined, pages: number) => boolean,
) {
  const claiming = JobRepository.use((jobs) =>
    jobs.claim(orgId, { workflows: ["w"], limit: 1, now, leaseUntil: plus(now, 60) }),
  )
  let pages = 0
  for (let n = 0; n < 100; n++) {
    let id: string | undefined
    pages = yield* pagesOf(Effect.tap(claiming, ([job]) => Effect.sync(() => (id = job?.job_id))))
    if (isDone(id, pages)) return id
    yield* Effect.sleep("50 millis")
  }
  return assert.fail(`no such claim; the last one read ${pages} pages`)
})

layer(world, { excludeTestServices: true })("beside a forgotten transaction", (it) => {
  // Seen failing with 1,579 pages, and with 1,103 for a claim alone.
  it.effect.each([false, true])("events are queued and claimed past dead entries, in order: %s", function* (ordered) {
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    const endpoint = yield* insertEndpoint(orgId, { ordered, now })
    yield* publish(orgId, "a.b", now)
    yield* record(
      (yield* claim(now)).map((one) => attempt(one, "Delivered", now)),
      now,
    )
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* leaveDead(orgId, endpoint, now, dead)
        yield* look
        const later = yield* DateTime.now
        assert.isBelow(yield* pagesOf(publish(orgId, "a.b", later)), 300)
        const id = yield* publish(orgId, "a.b", later)
        const claiming = Effect.tap(claimOf(orgId, plus(later, 1)), (events) =>
          Effect.sync(() => assert.strictEqual(events.at(-1), id)),
        )
        assert.isBelow(yield* pagesOf(claiming), 300)
        assert.isBelow(yield* pagesOf(DeliveryQueue.use((queue) => queue.nextDueAt)), 300)
      }),
    )
  })

  it.effect("a look finds what a claim does not read: expired leases, and what others queued late", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    const [endpoint, other] = [yield* insertEndpoint(orgId, { now }), yield* insertEndpoint(orgId, { now })]
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* leaveDead(orgId, endpoint, now, dead)
        yield* leaveDead(orgId, other, now, dead)
        yield* look
        const id = yield* publish(orgId, "a.b", now)
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 1)), [id, id])
        const next = yield* publish(orgId, "a.b", plus(now, 30))
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 31)), [next, next])
        // Another replica moves a delivery to the backlog of long ago.
        yield* sql`UPDATE pending_deliveries SET backlogged = true, lease_until = NULL, due_at = ${DateTime.toDateUtc(plus(now, -99))}
            WHERE lane = ${other} AND event_id = ${id}`
        const late = plus(now, 62)
        assert.deepStrictEqual(yield* claimOf(orgId, late), [])
        yield* sql`UPDATE pending_deliveries SET lease_until = now() WHERE lease_until < ${DateTime.toDateUtc(late)}`
        yield* look
        assert.deepStrictEqual(yield* claimOf(orgId, late), [id, id])
      }),
    )
  })

  // Seen failing: the position moved back at the publish, and a claim before the commit moved it on again.
  it.effect("an event whose transaction is open during a claim is claimed by the next one", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    const endpoint = yield* insertEndpoint(orgId, { now })
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* leaveDead(orgId, endpoint, now, dead)
        yield* look
        const published = yield* Deferred.make<void>()
        const claimed = yield* Deferred.make<void>()
        const publishing = yield* publish(orgId, "a.b", plus(now, 10)).pipe(
          Effect.tap(Deferred.succeed(published, undefined)),
          Effect.tap(Deferred.await(claimed)),
          sql.withTransaction,
          Effect.forkChild,
        )
        yield* Deferred.await(published)
        const other = yield* publish(orgId, "a.b", plus(now, 20))
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 30)), [other])
        yield* Deferred.succeed(claimed, undefined)
        const id = yield* Fiber.join(publishing)
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 31)), [id])
      }),
    )
  })

  it.effect("an ordered lane waits for its retry, also after a look", function* () {
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    const endpoint = yield* insertEndpoint(orgId, { ordered: true, now })
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* leaveDead(orgId, endpoint, now, dead)
        yield* look
        const first = yield* publish(orgId, "a.b", now)
        const claimed = (yield* claim(now)).find((one) => one.orgId === orgId)
        yield* publish(orgId, "a.b", plus(now, 5))
        yield* record([attempt(claimed!, { retryAt: plus(now, 600) }, now)], now)
        yield* look
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 30)), [])
        assert.deepStrictEqual(yield* claimOf(orgId, plus(now, 601)), [first])
      }),
    )
  })

  // Seen failing with 4,288 pages for each claim, and with 4,375 for each creation.
  it.effect("jobs are claimed past dead entries, and those that are queued again or late are found", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    const queue = (prefix: string, count: number) => sql`
        INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
        SELECT ${prefix}::text || n, ${orgId}, 'w', true, 'queued', now(), now() FROM generate_series(1, ${count}::int) AS n`
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* queue("00", dead)
        yield* sql`DELETE FROM jobs WHERE org_id = ${orgId}`
        const create = insertJob(orgId, { workflow: "w", now })
        yield* claimJobUntil(orgId, now, (id) => id === undefined)
        yield* claimJobUntil(orgId, now, (id, pages) => id === undefined && pages < 300)
        const first = yield* create
        // The first has counted the org's unfinished jobs.
        assert.isBelow(yield* pagesOf(insertJob(orgId, { workflow: "other", now })), 300)
        assert.strictEqual(yield* claimJobUntil(orgId, now, (_, pages) => pages < 300), first)
        // Claimed again after its lease, before the jobs that were created since.
        yield* create
        yield* create
        yield* JobRepository.use((jobs) => jobs.expireLeases({ now: plus(now, 61), limit: 1_000, after: null }))
        assert.strictEqual(yield* claimJobUntil(orgId, now, (_, pages) => pages < 300), first)
        // Another replica queues one with an id of long ago.
        yield* queue("01", 1)
        yield* claimJobUntil(orgId, now, (id) => id === "011")
      }),
    )
  })

  // Seen failing with 596 pages for a claim: each look-up read all entries of another index.
  it.effect("jobs are found by their ids after statistics that have seen none", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const now = yield* DateTime.now
    yield* besideOldSnapshot(
      Effect.gen(function* () {
        yield* sql`
            INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
            SELECT '00' || lpad(n::text, 24, '0'), ${orgId}, 'w', true, 'queued', now(), now()
            FROM generate_series(1, ${dead}::int) AS n`
        yield* sql`UPDATE jobs SET status = 'running', lease_expires_at = now()`
        yield* sql`DELETE FROM jobs`
        // As autovacuum does.
        yield* sql`VACUUM ANALYZE jobs`
        yield* claimJobUntil(orgId, now, (id, pages) => id === undefined && pages < 300)
        const job = yield* insertJob(orgId, { workflow: "w", now })
        assert.strictEqual(yield* claimJobUntil(orgId, now, (_, pages) => pages < 300), job)
        assert.isBelow(yield* pagesOf(finish(orgId, job!, completed(1), now)), 300)
      }),
    )
  })
})
