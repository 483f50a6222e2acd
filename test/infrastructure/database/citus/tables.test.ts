import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { shardOf, shardSql } from "#src/infrastructure/database/shards.ts"
import { platformTables, tenantTables } from "#src/infrastructure/database/citus/distribute.ts"
import { databases } from "../../../support/databases.ts"

layer(databases.postgres, { excludeTestServices: true })("shards", (it) => {
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

  it.effect("the program and the database find the same shard of an org, and use all shards", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql<{ id: string; shard: number }>`
        SELECT id, ${sql.literal(shardSql("id", 64))}::int AS shard FROM (
          SELECT md5(n::text) AS id FROM generate_series(1, 2000) AS n
        ) AS orgs`
      for (const { shard, id } of rows) assert.strictEqual(shardOf(id, 64), shard)
      assert.strictEqual(new Set(rows.map(({ shard }) => shard)).size, 64)
    }),
  )
})
