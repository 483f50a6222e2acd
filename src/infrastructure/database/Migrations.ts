import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Schedule, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, SqlError } from "effect/sql"
import { createHash } from "node:crypto"
import { readdir } from "node:fs/promises"
import { StartupError } from "../StartupError.ts"

const migrationsTable = "gatehouse_migrations"
const folder = new URL("./migrations/", import.meta.url)

/** An index of a table that may have many rows. */
export interface Index {
  readonly name: string
  readonly table: string
  readonly isUnique?: boolean
  /** What follows the table in `CREATE INDEX`: `(org_id, id) WHERE …`. */
  readonly on: string
}

/**
 * A file `0002_name.ts` of the folder. Either its default export is an Effect over `SqlClient`, which runs in one
 * transaction; or it exports `indexes`, which are built without holding up writes.
 */
interface Migration {
  readonly id: number
  readonly name: string
  readonly load: Effect.Effect<{
    readonly default?: Effect.Effect<unknown, unknown, SqlClient.SqlClient>
    readonly indexes?: ReadonlyArray<Index>
  }>
}

const inFolder = Effect.map(
  Effect.promise(() => readdir(folder)),
  (names) =>
    names.toSorted().flatMap((file): ReadonlyArray<Migration> => {
      const [, id, name] = /^(\d{4})_(\w+)\.[jt]s$/.exec(file) ?? []
      const load = Effect.promise(() => import(new URL(file, folder).href))
      return name === undefined ? [] : [{ id: Number(id), name, load }]
    }),
)

/** The migrations that this program knows, in their order. */
export const Known = Context.Reference<Effect.Effect<ReadonlyArray<Migration>>>(
  "gatehouse/infrastructure/database/Migrations/Known",
  { defaultValue: () => inFolder },
)
const known = Effect.flatten(Known)

/** The id of the newest migration that this program knows. */
const newest = Effect.map(known, (migrations) => Math.max(0, ...migrations.map(({ id }) => id)))

/** The id of the newest migration that the database has; 0 if it has none. */
export const applied = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ id: number }>`SELECT coalesce(max(migration_id), 0)::int AS id FROM ${sql(migrationsTable)}`,
    ([row]) => row!.id,
  ),
)

const tableExists = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ exists: boolean }>`SELECT to_regclass(${migrationsTable}) IS NOT NULL AS exists`,
    ([row]) => row!.exists,
  ),
)

/** The statements of a migration, as it sends them to a database that answers each with no rows. */
const statementsOf = Effect.fnUntraced(function* (effect: Effect.Effect<unknown, unknown, SqlClient.SqlClient>) {
  const statements: Array<readonly [statement: string, values: ReadonlyArray<unknown>]> = []
  const note = (statement: string, values: ReadonlyArray<unknown>) =>
    Effect.sync(() => {
      statements.push([statement, values])
      return []
    })
  const client = SqlClient.make({
    acquirer: Effect.succeed({
      execute: note,
      executeRaw: note,
      executeStream: () => Stream.empty,
      executeUnprepared: note,
      executeValues: note,
      executeValuesUnprepared: note,
    }),
    compiler: PgClient.makeCompiler(),
    driver: "none",
    spanAttributes: [],
  }).pipe(Effect.provide(Reactivity.layer))
  yield* Effect.provideServiceEffect(effect, SqlClient.SqlClient, client)
  return statements
})

/** What a migration does, as a SHA-256 in hexadecimal digits. Stored with it when it is applied. */
const checksumOf = Effect.fnUntraced(function* ({ load }: Migration) {
  const { default: effect = Effect.void, indexes } = yield* load
  const statements = yield* Effect.orDie(statementsOf(effect))
  return createHash("sha256").update(JSON.stringify({ statements, indexes })).digest("hex")
})

/** The migrations of a database beside those of this program, each as the id of the newest. */
export interface State {
  readonly applied: number
  readonly known: number
  /** Why this program cannot work with the database, in a sentence. */
  readonly fault: string | undefined
}

/**
 * What compares the migrations of a database with those that this program knows. Those of a version before release
 * 1.0 may have made other tables than this program needs.
 */
export const makeCompare = Effect.gen(function* () {
  const [migrations, newestKnown] = [yield* known, yield* newest]
  const checksums = new Map(
    yield* Effect.forEach(migrations, (one) => Effect.map(checksumOf(one), (checksum) => [one.id, checksum] as const)),
  )
  return Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const state = { applied: 0, known: newestKnown, fault: undefined }
    if (!(yield* tableExists)) return state
    // The first versions had no column for it.
    const rows = yield* sql<{ id: number; checksum: string | null }>`
      SELECT migration_id AS id, to_jsonb(m) ->> 'checksum' AS checksum FROM ${sql(migrationsTable)} AS m ORDER BY 1`
    const other = rows.find(({ checksum, id }) => checksums.has(id) && checksums.get(id) !== checksum)
    return {
      ...state,
      applied: rows.at(-1)?.id ?? 0,
      fault:
        other &&
        `The database was made by another, unreleased version: its migration ${other.id} did something else. Start that version, or use an empty database`,
    }
  })
})

/** Compares the migrations of the database with those that this program knows. */
export const compare: Effect.Effect<State, SqlError.SqlError, SqlClient.SqlClient> = Effect.flatten(makeCompare)

/**
 * How long a statement of a migration waits for a lock, in milliseconds. Requests queue behind a waiting `ALTER TABLE`.
 * Shorter than `deadlock_timeout`, so that in a deadlock the migration gives way, and not a request.
 */
const lockMillis = 300

/** Tries of a migration that loses against other transactions: about five minutes. */
const retries = Schedule.max([
  Schedule.jittered(Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("3 seconds")])),
  Schedule.recurs(100),
])

const stateOf = (error: unknown) =>
  SqlError.isSqlError(error) ? (error.reason.cause as { readonly code?: string } | undefined)?.code : undefined

/** SQLSTATEs of statements that lost against another transaction: serialization, deadlock, lock_timeout. */
const lostStates = new Set(["40001", "40P01", "55P03"])
/** The index exists: another replica has begun to build it. */
const duplicateRelation = "42P07"

/** What the operator can do, by SQLSTATE or its class. */
const remedies: Readonly<Record<string, string>> = {
  "40P01": "Other transactions hold its tables: stop workers or replicas, and start again",
  "55P03": "Other transactions hold its tables: end long ones (pg_stat_activity), and start again",
  "23": "Rows of the database break a rule of the new version: correct them, and start again",
  "25006": "The database is read-only: set DATABASE_URL to the primary server, and start again",
  "42501": "Give the role of DATABASE_URL the right to change the schema, as its owner has it, and start again",
  "53": "Give the database the disk space, memory or connections, and start again",
  "57014": "A time limit of the database ended it: raise statement_timeout of the role, and start again",
}

const failed = ({ id, name }: Migration) =>
  Effect.mapError((error: unknown) => {
    const state = stateOf(error)
    // While the database does not respond, the start tries again.
    if (SqlError.isSqlError(error) && (state === undefined || state.startsWith("08") || state.startsWith("57P"))) {
      return error
    }
    const { message } = SqlError.isSqlError(error) ? (error.reason.cause as Error) : new Error(String(error))
    const remedy =
      remedies[state ?? ""] ?? remedies[state?.slice(0, 2) ?? ""] ?? "Start the previous version, and report this"
    return new StartupError({
      message: `Migration ${id} (${name}) failed: ${message}${state === undefined ? "" : ` (SQLSTATE ${state})`}. It is not applied. ${remedy}. See docs/upgrading.md`,
      cause: error,
    })
  })

/** Retries what loses against other transactions, and logs it. */
const persistent =
  ({ id, name }: Migration, states: ReadonlySet<string>) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) => {
    const isLost = (error: E) => states.has(stateOf(error) ?? "")
    return effect.pipe(
      Effect.tapError((error) =>
        isLost(error)
          ? Effect.logInfo(`Migration ${id} (${name}) gave way to other transactions (SQLSTATE ${stateOf(error)})`)
          : Effect.void,
      ),
      Effect.retry({ while: isLost, schedule: retries }),
    )
  }

const record = Effect.fnUntraced(function* (migration: Migration) {
  const sql = yield* SqlClient.SqlClient
  const { id, name } = migration
  yield* sql`
    INSERT INTO ${sql(migrationsTable)} (migration_id, name, checksum) VALUES (${id}, ${name}, ${yield* checksumOf(migration)})
    ON CONFLICT DO NOTHING`
})

const isApplied = ({ id }: Migration) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(sql`SELECT FROM ${sql(migrationsTable)} WHERE migration_id = ${id}`, (rows) => rows.length > 0),
  )

/**
 * Runs a migration in a transaction, under a lock on the table of migrations: of several replicas one migrates, and the
 * others wait. Reading the table does not wait, so that replicas stay ready.
 *
 * @returns whether this process applied it
 */
const change = Effect.fnUntraced(function* (
  migration: Migration,
  effect: Effect.Effect<unknown, unknown, SqlClient.SqlClient>,
) {
  const sql = yield* SqlClient.SqlClient
  return yield* Effect.gen(function* () {
    // Without a limit: another replica may migrate for long.
    yield* sql`SET LOCAL lock_timeout = 0`
    yield* sql`LOCK TABLE ${sql(migrationsTable)} IN SHARE ROW EXCLUSIVE MODE`
    if (yield* isApplied(migration)) return false
    yield* sql`SELECT set_config('lock_timeout', ${`${lockMillis}ms`}, true), set_config('statement_timeout', '0', true)`
    yield* effect
    yield* record(migration)
    return true
  }).pipe(sql.withTransaction, persistent(migration, lostStates))
})

/** Whether an index is there, and whether it can be used. */
const stateOfIndex = Effect.fnUntraced(function* ({ name, table }: Index) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ state: "absent" | "building" | "invalid" | "valid" }>`
    SELECT CASE
      WHEN (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(${name})) THEN 'valid'
      WHEN EXISTS (
        SELECT FROM pg_stat_progress_create_index WHERE relid = to_regclass(${table}) AND pid <> pg_backend_pid()
      ) THEN 'building'
      WHEN to_regclass(${name}) IS NOT NULL THEN 'invalid'
      ELSE 'absent' END AS state`
  return row!.state
})

/**
 * Drops an invalid index that an interrupted build left. First waits for a replica that still builds it, which holds
 * the lock on the table.
 */
const dropInvalid = Effect.fnUntraced(function* (index: Index) {
  const sql = yield* SqlClient.SqlClient
  yield* Effect.gen(function* () {
    yield* sql`SELECT set_config('lock_timeout', ${`${lockMillis}ms`}, true)`
    yield* sql`LOCK TABLE ${sql(index.table)} IN SHARE UPDATE EXCLUSIVE MODE`
    if ((yield* stateOfIndex(index)) === "invalid") yield* sql`DROP INDEX ${sql(index.name)}`
  }).pipe(sql.withTransaction)
})

/**
 * Builds an index while others write, outside a transaction. Can be interrupted at any time and run again: an invalid
 * index that is left is dropped, and built again.
 */
const buildIndex = Effect.fnUntraced(function* (index: Index) {
  const sql = yield* SqlClient.SqlClient
  // Another replica builds it. Waiting in a statement would be a deadlock, because the build waits for all running
  // statements.
  const state = yield* Effect.repeat(stateOfIndex(index), {
    while: (state) => state === "building",
    schedule: Schedule.spaced("1 second"),
  })
  if (state === "valid") return
  if (state === "invalid") yield* dropInvalid(index)
  const { isUnique = false, name, on, table } = index
  yield* sql
    .unsafe(`CREATE ${isUnique ? "UNIQUE " : ""}INDEX CONCURRENTLY ${name} ON ${table} ${on}`)
    // An invalid unique index would still refuse rows.
    .pipe(Effect.onError(() => Effect.ignore(dropInvalid(index))))
})

const build = Effect.fnUntraced(function* (migration: Migration, indexes: ReadonlyArray<Index>) {
  const states = new Set([...lostStates, duplicateRelation])
  for (const index of indexes) yield* buildIndex(index).pipe(persistent(migration, states))
  if (yield* isApplied(migration)) return false
  yield* record(migration)
  return true
})

const createTable = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  if (yield* tableExists) return
  yield* sql`
    CREATE TABLE ${sql(migrationsTable)} (
      migration_id integer PRIMARY KEY,
      created_at timestamptz NOT NULL DEFAULT now(),
      name text NOT NULL,
      checksum text NOT NULL
    )`.pipe(
    // Another replica has just created it.
    Effect.catch((error) => Effect.flatMap(tableExists, (exists) => (exists ? Effect.void : Effect.fail(error)))),
  )
})

/** Applies the missing migrations, each by itself. Returns those that this process applied. */
const run = Effect.gen(function* () {
  yield* createTable
  const newestApplied = yield* applied
  const done: Array<Migration> = []
  for (const migration of yield* known) {
    if (migration.id <= newestApplied) continue
    const { default: effect = Effect.void, indexes } = yield* migration.load
    const apply = indexes === undefined ? change(migration, effect) : build(migration, indexes)
    if (yield* apply.pipe(failed(migration))) done.push(migration)
  }
  return done
})

/**
 * Applies the missing migrations. Of several replicas that start together, one applies each, and the others wait. Fails
 * with a `StartupError` if a newer or an unreleased version has migrated the database, or a migration fails.
 */
export const migrate: Effect.Effect<void, StartupError | SqlError.SqlError, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const before = yield* compare
    if (before.fault !== undefined) {
      return yield* new StartupError({ message: `${before.fault}. See docs/upgrading.md` })
    }
    for (const { id, name } of yield* run) yield* Effect.logInfo(`Migration ${id} applied: ${name}`)
    const [newestKnown, newestApplied] = [yield* newest, yield* applied]
    if (newestApplied > newestKnown) {
      return yield* new StartupError({
        message: `The database belongs to a newer version (migration ${newestApplied}; this version knows ${newestKnown}). Start that version of Gatehouse, or restore a backup from before the upgrade`,
      })
    }
  },
)
