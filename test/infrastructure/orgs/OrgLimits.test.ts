import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { insertAll } from "../../contract/jobs/jobBatches.ts"
import { refusal, together, updateOrg } from "../../contract/orgs/orgLimits.ts"
import { untilWaiting } from "../../contract/meet.ts"
import { insertOrg, insertProject, newEntry, newKey } from "../../contract/support.ts"
import { insertEndpoint, insertJob } from "../../contract/webhooks/webhookSupport.ts"
import { layer } from "../../support/it.ts"
import { until, within } from "../../support/wait.ts"
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
/** Changes the state of one job by SQL. */
const setState = (orgId: string, from: string, to: string) =>
  SqlClient.SqlClient.use(
    (sql) => sql`
      UPDATE jobs SET status = ${to}
      WHERE id = (SELECT id FROM jobs WHERE org_id = ${orgId} AND status = ${from} LIMIT 1)`,
  )
/** An org that has room for one unfinished job, though `org_usage` says that it has none. */
const orgWithRoom = Effect.gen(function* () {
  const { orgId } = yield* insertOrg()
  yield* updateOrg(orgId, { limits: { unfinishedJobs: 3 } })
  assert.deepStrictEqual(yield* together(insertJob(orgId), 3), { ok: 3 })
  assert.strictEqual(yield* refusal(insertJob(orgId)), "3 unfinished jobs")
  yield* setState(orgId, "queued", "completed")
  return { orgId }
})
/** Runs an effect while the row of an org in `org_usage` is locked, so that a correction of it waits. */
const whileLocked = <A, E, R>(orgId: string, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [locked, free] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const holding = sql`SELECT 1 FROM org_usage WHERE org_id = ${orgId} FOR UPDATE`.pipe(
      Effect.andThen(Deferred.succeed(locked, undefined)),
      Effect.andThen(Deferred.await(free)),
      sql.withTransaction,
    )
    const fiber = yield* Effect.forkChild(holding)
    yield* Deferred.await(locked)
    const made = yield* Effect.ensuring(effect, Deferred.succeed(free, undefined))
    yield* Fiber.join(fiber)
    return made
  })
layer(replicas, { excludeTestServices: true })("limits of an org, on PostgreSQL", (it) => {
  it.effect("cost no further statement after the first creation, whether an org has few rows or many", function* () {
    for (const keys of [0, 2_000]) {
      const { orgId } = yield* insertOrg()
      yield* addKeys(orgId, keys)
      const creations: ReadonlyArray<Effect.Effect<unknown, unknown, Layer.Success<typeof replica>>> = [
        insertKey(orgId),
        insertProject(orgId),
        insertEndpoint(orgId),
        insertJob(orgId, { input: "input" }),
      ]
      for (const create of creations) {
        // It counts what is not known.
        assert.strictEqual(yield* statementsOf(create), 3)
        for (let n = 0; n < 3; n++) assert.strictEqual(yield* statementsOf(create), 1)
      }
      assert.strictEqual((yield* usedBy(orgId)).keys, keys + 4)
    }
  })

  it.effect("are exact for many rows, however many are created at once", function* () {
    const { orgId } = yield* insertOrg()
    yield* addKeys(orgId, 1_200)
    yield* updateOrg(orgId, { limits: { keys: 1_500 } })
    assert.deepStrictEqual(yield* together(insertKey(orgId), 40), { ok: 40 })
    yield* updateOrg(orgId, { limits: { keys: 1_252 } })
    assert.deepStrictEqual(yield* together(insertKey(orgId), 24), { ok: 12, "1252 API keys": 12 })
    assert.strictEqual((yield* usedBy(orgId)).keys, 1_252)
  })

  // Seen failing: what the exact count let through was missing in memory, so that 701 jobs were there.
  it.effect("are exact when large creations come before smaller ones", function* () {
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
  })

  // Seen failing: the keys that were imported were missing in memory.
  it.effect("are exact when keys are imported before others are created", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { keys: 1_000 } })
    yield* addKeys(orgId, 200)
    assert.strictEqual(yield* refusal(insertKey(orgId)), "ok")
    yield* importKeys(orgId, 799)
    assert.strictEqual(yield* refusal(insertKey(orgId)), "1000 API keys")
    assert.strictEqual((yield* usedBy(orgId)).keys, 1_000)
  })

  it.effect("are exceeded at most by what another replica creates meanwhile", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 3, projects: 3 } })
    const atBoth = Effect.fnUntraced(function* <A, E, R extends Layer.Success<typeof replica>>(
      create: Effect.Effect<A, E, R>,
    ) {
      const all = yield* Effect.all([together(create, 10), atOther(together(create, 10))], { concurrency: 2 })
      const [here, there] = all.map(({ ok = 0 }) => ok) as [number, number]
      assert.isAtMost(Math.max(here, there), 3)
      assert.isAtLeast(here + there, 3)
      return here + there
    })
    const unfinishedJobs = yield* atBoth(insertJob(orgId))
    assert.strictEqual(yield* refusal(insertJob(orgId)), "3 unfinished jobs")
    assert.strictEqual(yield* atOther(refusal(insertJob(orgId))), "3 unfinished jobs")
    const projects = yield* atBoth(insertProject(orgId))
    assert.deepInclude(yield* usedBy(orgId), { unfinishedJobs, projects })
  })

  // Seen failing: the other replica used the limit of its last count.
  it.effect("change at all replicas at once", function* () {
    const { orgId } = yield* insertOrg()
    yield* addKeys(orgId, 1_000)
    const here = yield* Effect.context<Layer.Success<typeof replica>>()
    const atBoth = Effect.gen(function* () {
      yield* insertKey(orgId)
      yield* Effect.provideContext(updateOrg(orgId, { limits: { keys: 1_002 } }), here)
      return yield* together(insertKey(orgId), 3)
    })
    assert.deepStrictEqual(yield* atOther(atBoth), { ok: 1, "1002 API keys": 2 })
  })

  // Seen failing: a count that was not known was taken for zero.
  it.effect("hold for more than 20,000 rows that nobody has counted, and room returns soon", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    yield* addKeys(orgId, 21_000)
    yield* updateOrg(orgId, { limits: { keys: 20_500 } })
    assert.strictEqual(yield* refusal(insertKey(orgId)), "20500 API keys")
    assert.strictEqual((yield* usedBy(orgId)).keys, 21_000)
    yield* sql`DELETE FROM api_keys WHERE org_id = ${orgId} AND id > ${`${orgId}99`}`
    yield* updateOrg(orgId, { limits: { keys: 20_990 } })
    yield* until("room", refusal(insertKey(orgId)), (found) => found === "ok")
  })

  // Seen failing: five batches of a thousand passed a full limit, again and again.
  it.effect("hold for jobs and batches at a replica that has just started", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    yield* sql`
        INSERT INTO jobs (id, org_id, workflow, status, skip_callbacks, created_at, updated_at)
        SELECT ${orgId} || n, ${orgId}, 'w', 'queued', true, now(), now() FROM generate_series(1, 21_000) AS n`
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 21_000 } })
    const batch = insertAll(
      orgId,
      Array.from({ length: 100 }, () => ({})),
    )
    assert.deepStrictEqual(yield* atOther(together(batch, 5)), { "21000 unfinished jobs": 5 })
    assert.strictEqual(yield* atOther(refusal(insertJob(orgId))), "21000 unfinished jobs")
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 21_150 } })
    assert.deepStrictEqual(yield* atOther(together(batch, 5)), { ok: 1, "21150 unfinished jobs": 4 })
  })

  // Seen failing without the count of a process that has just started.
  it.effect("hold after a replica was killed before it wrote what it had added", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 30, keys: 30 } })
    // It ends without a last write.
    assert.deepStrictEqual(yield* atOther(together(insertJob(orgId), 25)), { ok: 25 })
    assert.deepStrictEqual(yield* atOther(together(insertJob(orgId), 25)), { ok: 5, "30 unfinished jobs": 20 })
    assert.deepStrictEqual(yield* atOther(together(insertKey(orgId), 25)), { ok: 25 })
    assert.deepStrictEqual(yield* atOther(together(insertKey(orgId), 25)), { ok: 5, "30 API keys": 20 })
  })

  // Seen failing when the org was remembered as counted, and not corrected: 24 more.
  it.effect("hold after that, too, when the first creation of a process is undone", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 25 } })
    yield* atOther(Effect.andThen(insertJob(orgId), refresh))
    // It counts at the first one, and ends without a last write.
    assert.deepStrictEqual(yield* atOther(Effect.andThen(insertJob(orgId), together(insertJob(orgId), 23))), {
      ok: 23,
    })
    // As that of a request with an idempotency key.
    assert.strictEqual(yield* refusal(sql.withTransaction(insertJob(orgId))), "25 unfinished jobs")
    assert.deepStrictEqual(yield* together(insertJob(orgId), 25), { "25 unfinished jobs": 25 })
  })

  it.effect("count what other replicas have added once they have written it", function* () {
    const { orgId } = yield* insertOrg()
    yield* updateOrg(orgId, { limits: { unfinishedJobs: 30 } })
    assert.strictEqual(yield* refusal(insertJob(orgId)), "ok")
    yield* atOther(Effect.andThen(together(insertJob(orgId), 28), refresh))
    assert.deepStrictEqual(yield* together(insertJob(orgId), 5), { ok: 1, "30 unfinished jobs": 4 })
  })

  // Seen failing: rows that ended during a count, and were taken by the next write, were in neither of the two.
  it.effect("hold when another creation ends, and is written, while one has counted", function* () {
    const { orgId } = yield* orgWithRoom
    const usage = yield* OrgUsage
    const held = usage.hold(orgId, { unfinished_jobs: 1 })
    const counted = yield* whileLocked(
      orgId,
      Effect.gen(function* () {
        const creation = yield* Effect.forkChild(refusal(insertJob(orgId)))
        yield* untilWaiting(1)
        yield* setState(orgId, "completed", "queued")
        usage.settle(held, { unfinished_jobs: 1 })
        usage.claimAll(1_000).forEach((claim) => usage.settle(claim, claim.amounts))
        const claims = usage.claimAll(1_000)
        return { creation, claims }
      }),
    )
    assert.strictEqual(yield* Fiber.join(counted.creation), "3 unfinished jobs")
    counted.claims.forEach((claim) => usage.settle(claim, claim.amounts))
  })

  // Seen failing with one turn for all orgs.
  it.effect("are counted for an org while the count of another waits", function* () {
    const [{ orgId }, other] = [yield* orgWithRoom, yield* insertOrg()]
    const creation = yield* whileLocked(
      orgId,
      Effect.gen(function* () {
        const creation = yield* Effect.forkChild(refusal(insertJob(orgId)))
        yield* untilWaiting(1)
        assert.strictEqual(yield* within("a creation of another org", refusal(insertJob(other.orgId))), "ok")
        return creation
      }),
    )
    assert.strictEqual(yield* Fiber.join(creation), "ok")
  })
})
