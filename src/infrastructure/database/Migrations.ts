import { Effect } from "effect"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { readdir } from "node:fs/promises"
import { StartupError } from "../StartupError.ts"

const TABLE = "gatehouse_migrations"
const folder = new URL("./migrations/", import.meta.url)

/** The migrations beside this file: `0001_name.ts`, each exporting an Effect over SqlClient by default. */
const modules = Effect.map(
  Effect.promise(() => readdir(folder)),
  (names) =>
    Object.fromEntries(
      names
        .filter((name) => /^\d{4}_\w+\.[jt]s$/.test(name))
        .map((name) => [name, () => import(new URL(name, folder).href)]),
    ),
)

/** The id of the newest migration that this program knows. */
export const newest = Effect.map(modules, (names) => Math.max(0, ...Object.keys(names).map((name) => parseInt(name))))

/** The id of the newest migration that the database has. */
export const applied = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ id: number }>`SELECT coalesce(max(migration_id), 0)::int AS id FROM ${sql(TABLE)}`,
    ([row]) => row!.id,
  ),
)

/**
 * Applies what the database lacks, in one transaction and under a lock on the migrations' table: of several replicas that
 * start together one does it, and the others wait for it. Refuses a database that a newer version has migrated.
 */
export const migrate: Effect.Effect<void, StartupError | SqlError.SqlError, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const known = yield* newest
    const loader = Effect.flatMap(modules, Migrator.fromGlob)
    const done = yield* Migrator.make({})({ loader, table: TABLE })
    for (const [id, name] of done) yield* Effect.logInfo(`Migration ${id} applied: ${name}`)
    const there = yield* applied
    if (there > known) {
      return yield* new StartupError({
        message: `The database is of a newer version (migration ${there}; this version knows ${known}); start the newer version`,
      })
    }
  },
).pipe(
  Effect.catchTag("MigrationError", (error) =>
    Effect.fail(new StartupError({ message: `${error.message}: ${reason(error.cause)}`, cause: error })),
  ),
)

const reason = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))
