import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import type { NewJob } from "#src/domain/jobs/JobRepository.ts"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { subtractStoredBytes } from "#src/infrastructure/orgs/storedBytes.ts"
import { refusal, updateOrg } from "../../contract/orgs/orgLimits.ts"
import { untilWaiting } from "../../contract/meet.ts"
import { at, insertOrg } from "../../contract/support.ts"
import { failed, finish, insertEndpoint, insertJob, publish } from "../../contract/webhooks/webhookSupport.ts"
import { until } from "../../support/wait.ts"
import { atOther, refresh, replicas, usedBy } from "./orgLimitsSupport.ts"

layer(replicas, { excludeTestServices: true })("limits of stored bytes, on PostgreSQL", (it) => {
  it.effect("hold at once for what this replica stores, and for other replicas once it is written", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { storedBytes: 100 } })
      const store = insertJob(orgId, { input: "x".repeat(58) })
      const written = sql`SELECT stored_bytes::int AS n FROM org_usage WHERE org_id = ${orgId}`
      assert.strictEqual(yield* refusal(store), "ok")
      assert.strictEqual(yield* refusal(store), "100 stored bytes")
      assert.deepStrictEqual(yield* written, [])
      yield* refresh
      assert.deepStrictEqual(yield* written, [{ n: 60 }])
      assert.strictEqual(yield* refusal(store), "100 stored bytes")
      assert.strictEqual(yield* atOther(refusal(store)), "100 stored bytes")
      // Removed bytes are subtracted in the transaction that removes them, never below zero.
      const subtract = (bytes: number) =>
        subtractStoredBytes(
          sql,
          new Map([
            [orgId, bytes],
            ["nobody", 1],
          ]),
        )
      yield* sql.withTransaction(Effect.andThen(subtract(50), Effect.fail("undone"))).pipe(Effect.ignore)
      assert.deepStrictEqual(yield* written, [{ n: 60 }])
      yield* subtract(50)
      assert.deepStrictEqual(yield* written, [{ n: 10 }])
      assert.strictEqual(yield* refusal(store), "ok")
      yield* subtract(1_000)
      yield* refresh
      assert.deepStrictEqual(yield* written, [{ n: 60 }])
    }),
  )

  // Seen failing: the event was stored, and its bytes did not count.
  it.effect("count an event whose publisher hangs up before it is stored", () =>
    Effect.gen(function* () {
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
        SELECT coalesce(sum(octet_length(body)), 0)::int AS bytes FROM events WHERE org_id = ${orgId}`
      assert.strictEqual((yield* usedBy(orgId)).storedBytes, stored!.bytes)
    }),
  )

  it.effect("are kept when a write fails, and forgotten with their org", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const usage = yield* OrgUsage
      const { orgId } = yield* insertOrg()
      usage.addBytes(orgId, 7)
      usage.addBytes("nobody", 7)
      yield* sql`ALTER TABLE org_usage RENAME TO hidden`
      const failed = yield* Effect.exit(refresh)
      yield* sql`ALTER TABLE hidden RENAME TO org_usage`
      assert.strictEqual(failed._tag, "Failure")
      assert.strictEqual(usage.unwrittenBytes(orgId), 7)
      yield* refresh
      assert.deepStrictEqual([usage.unwrittenBytes(orgId), usage.unwrittenBytes("nobody")], [0, 0])
      assert.strictEqual((yield* usedBy(orgId)).storedBytes, 7)
    }),
  )

  it.effect("shrink when retention removes rows", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
      // One event for two endpoints counts once.
      for (let n = 0; n < 2; n++) yield* insertEndpoint(orgId, { active: false })
      const event = (org: string, overrides: Partial<NewJob>) =>
        Effect.gen(function* () {
          const id = yield* insertJob(org, { input: "ñ", now: at(0), ...overrides })
          yield* finish(org, id, failed("boom", [1]), at(0))
          return id
        })
      yield* event(orgId, {})
      yield* event(orgId, { idempotencyKey: "kept" })
      yield* event(other.orgId, {})
      const written = (id: string) => Effect.map(usedBy(id), ({ storedBytes }) => storedBytes)
      yield* refresh
      const [{ bytes }] = (yield* sql<{ bytes: number }>`
        SELECT sum(octet_length(body))::int AS bytes FROM events WHERE org_id = ${orgId}`) as [{ bytes: number }]
      // The input, error and stack of each job.
      assert.strictEqual(yield* written(orgId), 2 * (4 + 4 + 3) + bytes)
      const remove = RetentionRepository.use(({ findOld, remove }) =>
        Effect.flatMap(findOld({ after: "", before: at(1), limit: 1_000 }), remove),
      )
      const undone = Effect.andThen(remove, Effect.fail("undone"))
      yield* Effect.ignore(sql.withTransaction(undone))
      assert.strictEqual(yield* written(orgId), 2 * (4 + 4 + 3) + bytes)
      yield* remove
      // The job with a valid idempotency key stays, without its event.
      assert.strictEqual(yield* written(orgId), 4 + 4 + 3)
      assert.strictEqual(yield* written(other.orgId), 0)
    }),
  )
})
