import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import platform from "#src/infrastructure/database/migrations/0001_platform.ts"
import webhooks from "#src/infrastructure/database/migrations/0002_webhooks.ts"
import pendingDeliveries from "#src/infrastructure/database/migrations/0003_pending_deliveries.ts"
import { adminClient, freshPostgres } from "../../support/databases.ts"

const before = Effect.gen(function* () {
  yield* platform
  yield* webhooks
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('o', 'o', now())`
  yield* sql`INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
    VALUES ('j', 'o', 'w', false, 'completed', now(), now())`
  yield* sql`INSERT INTO events (id, org_id, job_id, type, body, created_at) VALUES ('e', 'o', 'j', 't', '{}', now())`
  for (const [id, state, parked, claim, dueIn] of [
    ["due", "pending", false, null, 0],
    ["parked", "pending", true, null, 0],
    ["claimed", "pending", false, "c1", 60],
    ["canceled in flight", "canceled", false, "c2", 60],
    ["delivered", "delivered", false, null, null],
  ] as const) {
    yield* sql`
      INSERT INTO deliveries (id, org_id, event_id, job_id, lane, state, attempts, tries, next_attempt_at, parked, claim_id,
        created_at, updated_at)
      VALUES (${id}, 'o', 'e', 'j', 'lane', ${state}, 3, 2, ${dueIn}::int * interval '1 second' + '2026-11-20T17:00:00Z'::timestamptz,
        ${parked}, ${claim}, now(), now())`
  }
})

describe("the migration to a table of pending deliveries", () => {
  it.live("moves pending deliveries with their time, claim and count, and keeps the claim of canceled ones", () =>
    Effect.gen(function* () {
      const sql = yield* adminClient(yield* freshPostgres("empty"))
      yield* Effect.andThen(before, pendingDeliveries).pipe(Effect.provideService(SqlClient.SqlClient, sql))
      const at = (seconds: number) => new Date(Date.UTC(2026, 10, 20, 17, 0, seconds))
      const row = { lane: "lane", event_id: "e", attempts: 3, tries: 2, parked: false, claim_id: null }
      assert.deepStrictEqual(yield* sql`SELECT * FROM pending_deliveries ORDER BY delivery_id`, [
        { ...row, delivery_id: "claimed", due_at: at(60), claim_id: "c1" },
        { ...row, delivery_id: "due", due_at: at(0) },
        { ...row, delivery_id: "parked", due_at: at(0), parked: true },
      ])
      assert.deepStrictEqual(
        yield* sql`SELECT id, claim_id, lease_until FROM deliveries WHERE claim_id IS NOT NULL OR lease_until IS NOT NULL`,
        [{ id: "canceled in flight", claim_id: "c2", lease_until: at(60) }],
      )
    }),
  )
})
