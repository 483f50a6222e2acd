import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import platform from "#src/infrastructure/database/migrations/0001_platform.ts"
import webhooks from "#src/infrastructure/database/migrations/0002_webhooks.ts"
import orgLimits from "#src/infrastructure/database/migrations/0010_org_limits.ts"
import { adminClient, freshPostgres } from "../../support/databases.ts"

const before = Effect.gen(function* () {
  yield* platform
  yield* webhooks
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('a', 'a', now()), ('b', 'b', now()), ('c', 'c', now())`
  yield* sql`
    INSERT INTO jobs (id, org_id, workflow, input, result, error, mapped_stack, skip_callbacks, status, created_at, updated_at)
    VALUES ('1', 'a', 'w', '"ñ"', '12', NULL, NULL, false, 'completed', now(), now()),
      ('2', 'a', 'w', NULL, NULL, 'boom', '{}', false, 'failed', now(), now()),
      ('3', 'b', 'w', repeat('x', 100000), NULL, NULL, NULL, false, 'queued', now(), now())`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    VALUES ('e', 'a', '1', 't', repeat('x', 1000), now())`
  yield* sql`
    INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, input, skip_callbacks, next_at, created_at)
    VALUES ('s', 'b', 'w', '* * * * *', 'UTC', '1', false, now(), now()),
      ('t', 'c', 'w', '* * * * *', 'UTC', NULL, false, now(), now())`
})

it.live("the migration to limits counts the bytes that each org has stored", () =>
  Effect.gen(function* () {
    const sql = yield* adminClient(yield* freshPostgres("empty"))
    yield* Effect.andThen(before, orgLimits).pipe(Effect.provideService(SqlClient.SqlClient, sql))
    assert.deepStrictEqual(yield* sql`SELECT org_id, stored_bytes::int AS bytes FROM org_usage ORDER BY org_id`, [
      { org_id: "a", bytes: 4 + 2 + 4 + 2 + 1_000 },
      { org_id: "b", bytes: 100_000 + 1 },
    ])
    assert.deepStrictEqual(yield* sql`SELECT limits FROM orgs WHERE limits IS NOT NULL`, [])
  }),
)
