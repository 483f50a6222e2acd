import { assert } from "@effect/vitest"
import { Context, DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AlertRepository } from "#src/domain/alerts/Alerts.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { OrgScope } from "#src/domain/Principal.ts"
import type { NewEvent } from "#src/domain/ServiceEvent.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import * as AlertsSql from "#src/infrastructure/alerts/alertsSql.ts"
import { moveOrg } from "#src/infrastructure/database/manageNodes.ts"
import { Nodes } from "#src/infrastructure/database/Nodes.ts"
import { orgMoves } from "#src/infrastructure/database/orUnavailable.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import { movedTables } from "#src/infrastructure/sweeps/moveOrg.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databaseWithNode } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { at, newEntry, newId } from "../support.ts"
import { insertJob } from "../webhooks/webhookSupport.ts"
import { columns, fillTables, tablesWith } from "./everyTable.ts"

/**
 * Promise (Moving an org): A replica that has not heard of a move creates nothing at the old database; a request that
 * meets the switch runs once, at the new one.
 */

/**
 * Promise (Moving an org): Every row of an org moves, with what changes meanwhile, though every step of a move is done
 * twice. A table cannot be forgotten.
 */

/** Tables with an `org_id` whose rows stay in the platform's database. */
const platformTables = [
  "alerts",
  "activity_counts",
  "api_keys",
  "deployments",
  "docs_pages",
  "docs_questions",
  "endpoint_attempts",
  "key_counters",
  "key_usage",
  "moved_rows",
  "org_moves",
  "org_owners",
  "org_usage",
  "project_docs",
  "projects",
  "roles",
  "sessions",
]

const insertOrg = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const orgId = yield* newId
  yield* sql`INSERT INTO orgs (id, name, created_at) VALUES (${orgId}, 'o', now())`
  return orgId
})

/** The rows of an org in the tables of tenants, as text. */
const rowsOf = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, others: ReadonlyArray<string>) {
  const names = movedTables.map(({ name }) => name).filter((name) => !others.includes(name))
  const rows = yield* Effect.forEach(
    names,
    (name) =>
      sql<{ row: string }>`
      SELECT row_to_json(t)::text AS row FROM ${sql(name)} t WHERE org_id = ${orgId}
        AND coalesce(row_to_json(t) ->> 'kind', '') <> 'move' ORDER BY 1`,
  )
  return Object.fromEntries(names.map((name, n) => [name, rows[n]!.map(({ row }) => row)]))
})

/**
 * Moves an org, step by step. Each step runs twice, as if the process had ended before the sweep's own transaction
 * was committed.
 */
const moveTo = Effect.fnUntraced(function* (orgId: string, to: string, until: string) {
  const sql = yield* SqlClient.SqlClient
  const { advance } = yield* SweepRepository
  yield* Effect.asVoid(moveOrg(orgId, to))
  const sweep = sql<{ id: string; done_to: string }>`
    SELECT id, done_to FROM sweeps WHERE org_id = ${orgId} AND kind = 'move'`
  for (let steps = 0; steps < 1_000; steps++) {
    const [before] = yield* sweep
    if (before === undefined || before.done_to.startsWith(until)) return
    const step = Effect.gen(function* () {
      yield* advance(
        before.id,
        DateTime.add(yield* DateTime.now, { minutes: before.done_to.startsWith("left") ? 2 : 0 }),
        100,
      )
    })
    yield* step
    if ((yield* sweep).length === 0) return
    // After the switch, the steps are in the transaction of the switch.
    if (before.done_to.startsWith("left") || before.done_to === "drain") continue
    yield* sql`UPDATE sweeps SET done_to = ${before.done_to} WHERE id = ${before.id}`
    yield* step
  }
  assert.fail("The move does not end")
})

/** The platform's database refuses what a tenant creates there after its org has moved to a node. */
const refusedAt = Effect.fnUntraced(function* (orgId: string) {
  const now = yield* DateTime.now
  const { publish } = yield* EventRepository
  const event: NewEvent = {
    id: yield* newId,
    type: "t",
    body: "{}",
    idempotencyKey: null,
    channels: [],
    createdAt: now,
  }
  // Seen failing: the event was inserted, and no endpoint got it.
  assert.strictEqual(yield* Effect.flip(publish(orgId, [event])), orgMoves)
  for (const idempotencyKey of [null, "key"]) {
    assert.strictEqual(yield* Effect.flip(insertJob(orgId, { idempotencyKey })), orgMoves)
  }
})

const repositories = Layer.mergeAll(
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  EventsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  AlertsSql.layer,
).pipe(Layer.provide(crypto.layer))

layer(Layer.provideMerge(repositories, databaseWithNode), { excludeTestServices: true })("moves", (it) => {
  it.effect("every table of orgs is the platform's, or its rows move", function* () {
    const owned = (yield* columns).filter(({ column }) => column === "org_id").map(({ table }) => table)
    assert.sameMembers([...platformTables, ...movedTables.map(({ name }) => name)], owned)
  })

  it.effect(
    "every row of an org moves to a node and back, with what changes meanwhile; no other org's does",
    function* () {
      const sql = yield* SqlClient.SqlClient
      const { all } = yield* Nodes
      const node = all[0]!
      yield* node.migrated
      const [orgId, other] = [yield* insertOrg, yield* insertOrg]
      for (const id of [orgId, other]) yield* fillTables(id)
      yield* sql`DELETE FROM org_moves`
      yield* sql`DELETE FROM moved_rows`
      yield* sql`
        INSERT INTO jobs (id, org_id, workflow, skip_callbacks, idempotency_key, status, created_at, updated_at)
        SELECT ${orgId} || n, ${orgId}, 'w', true, 'k' || n, 'completed', now(), now()
        FROM generate_series(1, 150) AS n`
      const others = yield* tablesWith(other)

      for (const [to, source, target] of [
        ["node", sql, node.sql],
        ["platform", node.sql, sql],
      ] as const) {
        yield* moveTo(orgId, to, "copy 5")
        // Another job gets the idempotency key of one that was copied and is deleted.
        yield* source`DELETE FROM jobs WHERE org_id = ${orgId} AND idempotency_key = 'k7'`
        yield* source`UPDATE jobs SET idempotency_key = 'k7', workflow = 'changed' WHERE org_id = ${orgId} AND idempotency_key = 'k8'`
        yield* source`UPDATE webhook_endpoints SET url = 'changed' WHERE org_id = ${orgId}`
        yield* source`DELETE FROM endpoint_throttles WHERE org_id = ${orgId}`
        yield* moveTo(orgId, to, "drain")
        // The switch waits for what is in flight, whose attempt is recorded here.
        const claim = (id: string | null) => source`
          UPDATE pending_deliveries SET claim_id = ${id}, lease_until = CASE WHEN ${id}::text IS NOT NULL
            THEN now() + interval '1 minute' END WHERE org_id = ${orgId} RETURNING 1`
        assert.isNotEmpty(yield* claim("flight"))
        const [{ id }] = (yield* sql<{ id: string }>`
          SELECT id FROM sweeps WHERE org_id = ${orgId} AND kind = 'move'`) as [{ readonly id: string }]
        yield* (yield* SweepRepository).advance(id, yield* DateTime.now, 100)
        assert.deepStrictEqual(yield* sql`SELECT done_to FROM sweeps WHERE id = ${id}`, [{ done_to: "drain" }])
        yield* claim(null)
        const stays = ["audit_log"]
        const before = yield* rowsOf(source, orgId, stays)
        yield* moveTo(orgId, to, "left")
        assert.deepStrictEqual(yield* rowsOf(target, orgId, stays), before)
        assert.strictEqual(before["jobs"]!.length, to === "node" ? 150 : 149)
        assert.include(
          String(yield* Effect.flip(source`UPDATE jobs SET note = 'late' WHERE org_id = ${orgId}`)),
          "SqlError",
        )
        // A replica that has not heard of the move. Seen failing when events and sweeps passed at a node.
        const late = [
          source`INSERT INTO sweeps (id, org_id, kind, created_at) VALUES ('late', ${orgId}, 'resend', now())`,
          ...(to === "platform"
            ? [source`INSERT INTO events (id, org_id, type, created_at) VALUES ('late', ${orgId}, 't', now())`]
            : []),
        ]
        for (const write of late) assert.include(String(yield* Effect.flip(write)), "SqlError")
        yield* moveTo(orgId, to, "no end")
        if (to === "node") yield* refusedAt(orgId)
        // The platform keeps its log and its outbox, and answers of its own operations.
        const kept = to === "node" ? ["audit_log", "idempotency_keys", "events"] : []
        assert.deepStrictEqual(Object.values(yield* rowsOf(source, orgId, kept)).flat(), [])
        if (to === "platform") continue
        yield* target`UPDATE jobs SET idempotency_key = 'k7b' WHERE org_id = ${orgId} AND idempotency_key = 'k7'`
        yield* target`UPDATE jobs SET idempotency_key = 'k7' WHERE org_id = ${orgId} AND idempotency_key = 'k9'`
        yield* target`UPDATE jobs SET idempotency_key = 'k8' WHERE org_id = ${orgId} AND idempotency_key = 'k10'`
      }
      assert.deepStrictEqual(yield* tablesWith(other), others)
      const [org] = yield* sql<{ node: string | null }>`SELECT node FROM orgs WHERE id = ${orgId}`
      assert.isNull(org!.node)
      for (const one of [sql, node.sql]) {
        assert.deepStrictEqual(yield* one`SELECT 1 FROM pg_trigger WHERE tgname LIKE 'moves_%'`, [])
        assert.deepStrictEqual(yield* one`SELECT 1 FROM org_moves`, [])
      }
    },
  )

  // Seen failing: the org had twice the endpoints, schedules and jobs, and was named twice, until old rows had gone.
  it.effect("what an org has is told once, at each step of a move", function* () {
    const sql = yield* SqlClient.SqlClient
    const orgId = yield* insertOrg
    yield* fillTables(orgId)
    yield* sql`DELETE FROM org_moves`
    yield* sql`DELETE FROM moved_rows`
    yield* sql`
      UPDATE webhook_endpoints SET active = true, failing_since = now() - interval '1 day' WHERE org_id = ${orgId}`
    const { findWithUsage } = yield* OrgRepository
    const { endpoints } = yield* AlertRepository
    const told = Effect.gen(function* () {
      const { used } = yield* findWithUsage(orgId)
      const failing = yield* endpoints(OrgScope.EveryOrg(), yield* DateTime.now, 100)
      return { used, failing: failing.filter((one) => one.orgId === orgId) }
    })
    const before = yield* told
    assert.isAbove(before.used.endpoints, 0)
    assert.lengthOf(before.failing, before.used.endpoints)
    for (const to of ["node", "platform"]) {
      for (const step of ["drain", "left", "no end"]) {
        yield* moveTo(orgId, to, step)
        assert.deepStrictEqual(yield* told, before, `${step} of ${to}`)
      }
    }
  })

  // Seen failing: one statement, which a million rows made longer than its deadline, so that no try had an effect.
  it.effect("the pending deliveries of an org that has moved are erased in batches", function* () {
    const sql = yield* SqlClient.SqlClient
    const orgId = yield* insertOrg
    yield* sql`
      INSERT INTO pending_deliveries (org_id, lane, delivery_id, event_id, due_at, created_at, updated_at, bytes, attempts,
        tries, backlogged)
      SELECT ${orgId}, ${orgId}, ${orgId} || n, ${orgId}, now() + interval '1 hour', now(), now(), 0, 0, 0, false
      FROM generate_series(1, 150) AS n`
    yield* moveTo(orgId, "node", "left")
    const { advance } = yield* SweepRepository
    const [sweep] = yield* sql<{ id: string }>`SELECT id FROM sweeps WHERE org_id = ${orgId} AND kind = 'move'`
    const next = Effect.flatMap(DateTime.now, (now) => advance(sweep!.id, now, 100))
    assert.deepStrictEqual(yield* next, { rows: 100, isDone: false, isWaiting: false })
    assert.deepStrictEqual(yield* next, { rows: 50, isDone: false, isWaiting: true })
    assert.deepStrictEqual(yield* sql`SELECT 1 FROM pending_deliveries WHERE org_id = ${orgId}`, [])
    yield* moveTo(orgId, "node", "no end")
  })

  it.effect("a move of a deleted org ends, and nothing of it stays", function* () {
    const sql = yield* SqlClient.SqlClient
    const { all } = yield* Nodes
    const orgId = yield* insertOrg
    yield* fillTables(orgId)
    yield* sql`DELETE FROM org_moves`
    yield* sql`DELETE FROM moved_rows`
    yield* moveTo(orgId, "node", "copy")
    yield* sql`DELETE FROM orgs WHERE id = ${orgId}`
    const { advance } = yield* SweepRepository
    const now = yield* DateTime.now
    const [sweep] = yield* sql<{ id: string }>`SELECT id FROM sweeps WHERE org_id = ${orgId} AND kind = 'move'`
    assert.isTrue((yield* advance(sweep!.id, now, 100))?.isDone)
    assert.deepStrictEqual(yield* sql`SELECT 1 FROM pg_trigger WHERE tgname LIKE 'moves_%'`, [])
    const there = all[0]!.sql
    assert.deepStrictEqual(yield* there`SELECT kind FROM sweeps WHERE org_id = ${orgId} AND id = ${sweep!.id}`, [
      { kind: "erase" },
    ])
  })

  it.effect("the erasure of an org ends when its node has erased the rest, and its receipt counts both", function* () {
    const sql = yield* SqlClient.SqlClient
    const orgs = yield* OrgRepository
    const node = (yield* Nodes).all[0]!
    const orgId = yield* insertOrg
    yield* sql`UPDATE orgs SET node = ${node.name} WHERE id = ${orgId}`
    yield* sql`
        INSERT INTO api_keys (id, org_id, hash, prefix, name, created_at)
          VALUES (${orgId}, ${orgId}, ${orgId}, 'svc', 'k', now())`
    yield* node.sql`
        INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
        SELECT ${orgId} || n, ${orgId}, 'w', true, 'queued', now(), now() FROM generate_series(1, 30) AS n`
    const entry = newEntry({ action: "org.delete", target: orgId })
    yield* orgs.remove(orgId, at(0), entry)

    const here = yield* SweepRepository
    const there = Context.get(
      yield* Layer.build(Layer.fresh(repositories).pipe(Layer.provide(Layer.succeed(SqlClient.SqlClient, node.sql)))),
      SweepRepository,
    )
    const counts = Effect.map(orgs.erasure(orgId), ({ endedAt, erased: { jobs, keys } }) => ({ endedAt, jobs, keys }))
    yield* here.advance(entry.id, at(0), 1_000)
    // Another pass, and the last one. Seen failing: it ended, with what was erased here alone.
    assert.deepInclude(yield* here.advance(entry.id, at(100), 1_000), { isDone: false })
    assert.deepInclude(yield* here.advance(entry.id, at(100), 1_000), { isDone: false, isWaiting: true })
    yield* there.advance(entry.id, at(0), 20)
    assert.deepStrictEqual(yield* counts, { endedAt: null, jobs: 20, keys: 1 })
    while ((yield* there.advance(entry.id, at(100), 20))?.isDone === false);
    assert.deepStrictEqual(yield* counts, { endedAt: null, jobs: 30, keys: 1 })
    assert.deepInclude(yield* here.advance(entry.id, at(200), 1_000), { isDone: true })
    assert.deepStrictEqual(yield* counts, { endedAt: at(200), jobs: 30, keys: 1 })
  })

  it.effect("the erasure of an org waits for its node, which was away for a minute", function* () {
    const sql = yield* SqlClient.SqlClient
    const orgs = yield* OrgRepository
    const node = (yield* Nodes).all[0]!
    const orgId = yield* insertOrg
    yield* sql`UPDATE orgs SET node = ${node.name} WHERE id = ${orgId}`
    const entry = newEntry({ action: "org.delete", target: orgId })
    yield* orgs.remove(orgId, at(0), entry)
    // Seen failing: it ended, with a receipt from before the node had begun.
    const first = yield* (yield* SweepRepository).advance(entry.id, at(100), 1_000)
    assert.deepInclude(first, { isDone: false, isWaiting: true })
    assert.isNull((yield* orgs.erasure(orgId)).endedAt)
  })
})
