import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrations from "../database/Migrations.ts"
import { type Check, fail, ok, warn } from "./Check.ts"

/** Compares the migrations of the database with those of this version. */
export const checkMigrations = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{ exists: boolean }>`SELECT to_regclass('gatehouse_migrations') IS NOT NULL AS exists`
  const applied = table!.exists ? yield* Migrations.applied : 0
  const known = yield* Migrations.newest
  if (yield* Migrations.isUnreleased) {
    const check = fail("migrations", "a version before release 1.0 made the database", "start with an empty database")
    return { check, complete: false }
  }
  return { check: compare(applied, known), complete: applied >= known }
})

const compare = (applied: number, known: number): Check => {
  if (applied === known) return ok("migrations", `all are applied, the newest has number ${known}`)
  if (applied > known) {
    const found = `the database is at migration ${applied}, but this version knows only ${known}`
    return fail("migrations", found, "start the newer version")
  }
  const found =
    applied === 0 ? "none is applied" : `the database is at migration ${applied}; this version needs ${known}`
  return warn("migrations", found, "run gatehouse migrate, or start the service, which migrates first")
}
