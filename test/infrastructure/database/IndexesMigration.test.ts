import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { databases } from "../../support/databases.ts"

describe.each(Object.entries(databases))("migration 9, %s", (_, database) => {
  it.live(
    "a replica of the previous version continues: its ON CONFLICT finds the constraints and the partial indexes",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('o', 'o', now())`
        yield* sql`INSERT INTO projects (id, org_id, name, created_at, updated_at) VALUES ('p', 'o', 'p', now(), now())`
        const job = (id: string) => sql`
        INSERT INTO jobs (id, org_id, workflow, skip_callbacks, idempotency_key, status, created_at, updated_at)
        VALUES (${id}, 'o', 'w', true, 'k', 'queued', now(), now())
        ON CONFLICT DO NOTHING RETURNING id`
        const run = (id: string) => sql`
        INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, run_id, run_attempt,
          event_name, created_at)
        VALUES (${id}, 'o', 'p', 'github', 'main', 'r', 's', true, '1', 1, 'push', now())
        ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING RETURNING id`
        for (const insert of [job, run]) {
          assert.deepStrictEqual([yield* insert("first"), yield* insert("second")], [[{ id: "first" }], []])
        }
      }).pipe(Effect.provide(database)),
  )
})
