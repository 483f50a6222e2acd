import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrations from "../database/Migrations.ts"
import { type Check, fail, ok, warn } from "./Check.ts"

/** Which of the migrations that this version knows the database has. */
export const checkMigrations = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{ there: boolean }>`SELECT to_regclass('gatehouse_migrations') IS NOT NULL AS there`
  const applied = table!.there ? yield* Migrations.applied : 0
  const known = yield* Migrations.newest
  const remedy = "gatehouse migrate does it now, and gatehouse serve at its start"
  const check: Check =
    applied === 0
      ? warn("migrations", "none is in yet", remedy)
      : applied < known
        ? warn("migrations", `the database is at ${applied} and this version wants ${known}`, remedy)
        : applied > known
          ? fail(
              "migrations",
              `the database is at ${applied}, and this version knows ${known}`,
              "start the newer version",
            )
          : ok("migrations", `all ${known} are in`)
  return { check, complete: applied >= known }
})
