import { assert, layer } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { insertAll } from "../../contract/jobs/jobBatches.ts"
import { refusal, together, updateOrg } from "../../contract/orgs/orgLimits.ts"
import { insertOrg, insertProject, newEntry, newKey } from "../../contract/support.ts"
import { insertEndpoint, insertJob } from "../../contract/webhooks/webhookSupport.ts"
import { atOther, refresh, type replica, replicas, statementsOf, usedBy } from "./orgLimitsSupport.ts"

/** Inserts keys of an org by SQL. */
const addKeys = (orgId: string, count: number) =>
  SqlClient.SqlClient.use(
    (sql) => sql`
      INSERT INTO api_keys (id, org_id, name, prefix, hash, created_at)
      SELECT ${orgId} || n, ${orgId}, 'k', 'svc_', sha256((${orgId} || n)::bytea), now()
      FROM generate_series(1, ${count}::int) AS n`,
  )
const insertKey = Effect.fnUntraced(function* (orgId: string) {
  const key = yield* newKey()
  yield* ApiKeyRepository.use((keys) => keys.insertForOrg(orgId, key, newEntry()))
})
const importKeys = Effect.fnUntraced(function* (orgId: string, count: number) {
  const keys = yield* Effect.replicateEffect(newKey(), count)
  const all = keys.map((key) => ({ ...key, projectId: null, importStart: null }))
  yield* ApiKeyRepository.use((repository) => repository.importKeys(orgId, all, false, newEntry()))
})
layer(replicas, { excludeTestServices: true })("limits of an org, on PostgreSQL", (it) => {
  it.effect("cost no further statement, whether an org has few rows or many", () =>
    Effect.gen(function* () {
      const [few, many] = [yield* insertOrg(), yield* insertOrg()]
      yield* addKeys(many.orgId, 2_000)
      const { orgId } = few
      assert.strictEqual(yield* statementsOf(insertKey(orgId)), 1)
      assert.strictEqual(yield* statementsOf(insertProject(orgId)), 1)
      assert.strictEqual(yield* statementsOf(insertEndpoint(orgId)), 1)
      assert.strictEqual(yield* statementsOf(insertJob(orgId, { input: "input" })), 1)
      // The first creation counts the org's keys; later ones need no count while the limit is far.
      assert.isAbove(yield* statementsOf(insertKey(many.orgId)), 1)
      for (let n = 0; n < 3; n++) assert.strictEqual(yield* statementsOf(insertKey(many.orgId)), 1)
      assert.strictEqual((yield* usedBy(many.orgId)).keys, 2_004)
    }),
  )

  it.effect("are exact for many rows, however many are created at once", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* addKeys(orgId, 1_200)
      yield* updateOrg(orgId, { limits: { keys: 1_500 } })
      assert.deepStrictEqual(yield* together(insertKey(orgId), 40), { ok: 40 })
      yield* updateOrg(orgId, { limits: { keys: 1_252 } })
      assert.deepStrictEqual(yield* together(insertKey(orgId), 24), { ok: 12, "1252 API keys": 12 })
      assert.strictEqual((yield* usedBy(orgId)).keys, 1_252)
    }),
  )

  // Seen failing: what the exact count let through was missing in memory, so that 701 jobs were there.
  it.effect("are exact when large creations come before smaller ones", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { unfinishedJobs: 700 } })
      const batch = (size: number) =>
        insertAll(
          orgId,
          Array.from({ length: size }, () => ({})),
        )
      for (let n = 0; n < 10; n++) assert.strictEqual(yield* refusal(batch(65)), "ok")
      assert.strictEqual(yield* refusal(batch(51)), "700 unfinished jobs")
      assert.strictEqual(yield* refusal(batch(50)), "ok")
      assert.strictEqual(yield* refusal(insertJob(orgId)), "700 unfinished jobs")
      assert.strictEqual((yield* usedBy(orgId)).unfinishedJobs, 700)
    }),
  )

  // Seen failing: the keys that were imported were missing in memory.
  it.effect("are exact when keys are imported before others are created", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { keys: 1_000 } })
      yield* addKeys(orgId, 200)
      assert.strictEqual(yield* refusal(insertKey(orgId)), "ok")
      yield* importKeys(orgId, 799)
      assert.strictEqual(yield* refusal(insertKey(orgId)), "1000 API keys")
      assert.strictEqual((yield* usedBy(orgId)).keys, 1_000)
    }),
  )

  it.effect("are exact over two replicas", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* updateOrg(orgId, { limits: { unfinishedJobs: 3, projects: 3 } })
      const atBoth = <A, E, R extends Layer.Success<typeof replica>>(create: Effect.Effect<A, E, R>) =>
        Effect.map(
          Effect.all([together(create, 10), atOther(together(create, 10))], { concurrency: 2 }),
          ([here, there]) => (here["ok"] ?? 0) + (there["ok"] ?? 0),
        )
      assert.strictEqual(yield* atBoth(insertJob(orgId)), 3)
      assert.strictEqual(yield* atBoth(insertProject(orgId)), 3)
      assert.deepInclude(yield* usedBy(orgId), { unfinishedJobs: 3, projects: 3 })
    }),
  )

  // Seen failing: the other replica used the limit of its last count.
  it.effect("change at all replicas at once", () =>
    Effect.gen(function* () {
      const { orgId } = yield* insertOrg()
      yield* addKeys(orgId, 1_000)
      const here = yield* Effect.context<Layer.Success<typeof replica>>()
      const atBoth = Effect.gen(function* () {
        yield* insertKey(orgId)
        yield* Effect.provideContext(updateOrg(orgId, { limits: { keys: 1_002 } }), here)
        return yield* together(insertKey(orgId), 3)
      })
      assert.deepStrictEqual(yield* atOther(atBoth), { ok: 1, "1002 API keys": 2 })
    }),
  )

  it.effect("count more than 20,000 rows in the background", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { orgId } = yield* insertOrg()
      yield* addKeys(orgId, 21_000)
      yield* updateOrg(orgId, { limits: { keys: 20_500 } })
      // The background count has not run yet.
      assert.strictEqual(yield* refusal(insertKey(orgId)), "ok")
      yield* refresh
      assert.strictEqual(yield* refusal(insertKey(orgId)), "20500 API keys")
      assert.strictEqual((yield* usedBy(orgId)).keys, 21_001)
      yield* sql`DELETE FROM api_keys WHERE org_id = ${orgId} AND id < ${`${orgId}2`}`
      assert.strictEqual(yield* refusal(insertKey(orgId)), "20500 API keys")
      yield* refresh
      assert.strictEqual(yield* refusal(insertKey(orgId)), "ok")
    }),
  )
})
