import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrations from "../Migrations.ts"
import type { Distribution } from "./placements.ts"

/**
 * Applies the missing migrations to each bucket. Uses no bucket when all of them have every migration, so that the service
 * starts while a node is down.
 */
export const migrateBuckets = Effect.fnUntraced(function* ({ buckets, migratedTo }: Distribution) {
  const sql = yield* SqlClient.SqlClient
  const known = yield* Migrations.newest
  if (migratedTo >= known) return
  for (let bucket = 0; bucket < buckets; bucket++) yield* Migrations.migrateBucket(bucket)
  yield* sql`UPDATE public.gatehouse_distribution SET migrated_to = greatest(migrated_to, ${known}::int)`
})
