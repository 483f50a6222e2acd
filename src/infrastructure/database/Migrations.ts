import { Effect } from "effect"
import { Migrator, SqlClient, type SqlError } from "effect/sql"
import { readdir } from "node:fs/promises"
import { StartupError } from "../StartupError.ts"
import { schemaOf } from "./buckets.ts"

const migrationsTable = "gatehouse_migrations"
const folder = new URL("./migrations/", import.meta.url)
/** `.ts` in the sources, `.js` in the package. */
const extension = import.meta.url.slice(-3)

/** The migrations of the folder, `0001_name.ts`. The default export of each is an Effect over SqlClient. */
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

/** The id of the newest migration that the database has; 0 if it has none. */
export const applied = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ id: number }>`SELECT coalesce(max(migration_id), 0)::int AS id FROM ${sql(migrationsTable)}`,
    ([row]) => row!.id,
  ),
)

/**
 * Whether a version before release 1.0 made the database: its migration 1 has another name. Those versions had migrations of
 * their own, which no released version knows.
 */
export const isUnreleased = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [table] = yield* sql<{ exists: boolean }>`SELECT to_regclass(${migrationsTable}) IS NOT NULL AS exists`
  if (!table!.exists) return false
  const [first] = yield* sql<{ name: string }>`SELECT name FROM ${sql(migrationsTable)} WHERE migration_id = 1`
  return first !== undefined && !Object.hasOwn(yield* modules, `0001_${first.name}${extension}`)
})

const run = Effect.gen(function* () {
  const loader = Effect.flatMap(modules, Migrator.fromGlob)
  return yield* Migrator.make({})({ loader, table: migrationsTable })
}).pipe(
  Effect.catchTag("MigrationError", (error) =>
    Effect.fail(
      new StartupError({
        message: `A migration failed: ${error.message}: ${reason(error.cause)}. See docs/upgrading.md`,
        cause: error,
      }),
    ),
  ),
)

/**
 * Applies the missing migrations to the schema of a bucket, on a client with one connection. The tables of the platform are
 * there too, and empty, so that a migration is the same for every schema.
 */
export const migrateBucket = Effect.fnUntraced(function* (bucket: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`SELECT set_config('search_path', ${schemaOf(bucket)}, false)`
  return yield* Effect.ensuring(run, Effect.orDie(sql`SELECT set_config('search_path', 'public', false)`))
})

/**
 * Applies the missing migrations in one transaction, under a lock on the table of migrations: of several replicas that start
 * together, one migrates and the others wait. Fails with a `StartupError` if a newer version has migrated the database, or a
 * version before release 1.0 made it.
 */
export const migrate: Effect.Effect<void, StartupError | SqlError.SqlError, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const known = yield* newest
    if (yield* isUnreleased) {
      return yield* new StartupError({
        message:
          "The database was made by a version before release 1.0, which cannot be upgraded. Start with an empty database. See docs/upgrading.md",
      })
    }
    const done = yield* run
    for (const [id, name] of done) yield* Effect.logInfo(`Migration ${id} applied: ${name}`)
    const newestApplied = yield* applied
    if (newestApplied > known) {
      return yield* new StartupError({
        message: `The database belongs to a newer version (migration ${newestApplied}; this version knows ${known}). Start that version of Gatehouse, or restore a backup from before the upgrade`,
      })
    }
  },
)

const reason = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))
