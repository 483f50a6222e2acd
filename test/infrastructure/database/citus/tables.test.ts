import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { bucketOf, bucketSql } from "#src/infrastructure/database/buckets.ts"
import { platformTables, tenantTables } from "#src/infrastructure/database/citus/distribute.ts"
import { databases } from "../../../support/databases.ts"

layer(databases.postgres, { excludeTestServices: true })("buckets", (it) => {
  it.effect("every table is of the platform or of tenants", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tables = yield* sql<{ name: string }>`SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'`
      const names = tables.map(({ name }) => name).toSorted()
      assert.deepStrictEqual(names, [...platformTables, ...tenantTables].toSorted())
    }),
  )

  it.effect("every table of tenants has the org of its rows", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const tables = yield* sql<{ name: string }>`
        SELECT table_name AS name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'org_id'`
      const names = new Set(tables.map(({ name }) => name))
      assert.deepStrictEqual(
        tenantTables.filter((name) => !names.has(name)),
        [],
      )
    }),
  )

  it.effect("the program and the database find the same bucket of an org, and use all buckets", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql<{ id: string; bucket: number }>`
        SELECT id, ${sql.literal(bucketSql("id", 64))}::int AS bucket FROM (
          SELECT md5(n::text) AS id FROM generate_series(1, 2000) AS n
        ) AS orgs`
      for (const { bucket, id } of rows) assert.strictEqual(bucketOf(id, 64), bucket)
      assert.strictEqual(new Set(rows.map(({ bucket }) => bucket)).size, 64)
    }),
  )
})
