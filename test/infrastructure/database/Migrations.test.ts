import { assert, describe } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as Migrations from "#src/infrastructure/database/Migrations.ts"
import { adminClient, freshFolder, freshPostgres } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { until } from "../../support/wait.ts"

type Change = Effect.Effect<unknown, unknown, SqlClient.SqlClient>

/** Migration 1, and made-up ones after it: the changes of a later release. */
const withMigrations = (...made: ReadonlyArray<Change | ReadonlyArray<Migrations.Index>>) =>
  Effect.provideServiceEffect(
    Migrations.Known,
    Effect.gen(function* () {
      const released = yield* yield* Migrations.Known
      const later = made.map((one, index) => ({
        id: index + 2,
        name: `later_${index + 2}`,
        load: Effect.succeed(
          Effect.isEffect(one) ? { default: one } : { indexes: one as ReadonlyArray<Migrations.Index> },
        ),
      }))
      return Effect.succeed([...released, ...later])
    }),
  )

const run = (statement: string): Change => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement))
const addColumn = run("ALTER TABLE jobs ADD COLUMN colour text")
const index: Migrations.Index = {
  name: "jobs_by_colour",
  table: "jobs",
  on: "(org_id, colour) WHERE colour IS NOT NULL",
}
const names: Migrations.Index = { name: "orgs_name", table: "orgs", isUnique: true, on: "(name)" }

const recorded = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ name: string }>`SELECT name FROM gatehouse_migrations ORDER BY migration_id`,
).pipe(Effect.map((rows) => rows.map(({ name }) => name)))
const validity = (name: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`SELECT indisvalid AS valid FROM pg_index WHERE indexrelid = to_regclass(${name})`,
  )

const onPostgres = <A, E>(
  test: (
    sql: SqlClient.SqlClient,
    layer: Layer.Layer<Database | SqlClient.SqlClient, unknown>,
  ) => Effect.Effect<A, E, never>,
) =>
  Effect.gen(function* () {
    const url = yield* freshPostgres()
    const sql = yield* adminClient(url)
    return yield* test(sql, Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" }))
  }).pipe(Effect.scoped)

/** Starts on the database with the migrations; fails as the start does. */
const start = (layer: Layer.Layer<Database | SqlClient.SqlClient, unknown>) =>
  Effect.provide(
    Effect.flatMap(Database, ({ ready }) => ready),
    layer,
  )

describe.each([
  ["embedded", Effect.map(freshFolder(), (dataDir) => Database.layer({ dataDir }))],
  [
    "postgres",
    Effect.map(freshPostgres(), (url) => Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })),
  ],
] as const)("a later release, %s", (_, fresh) => {
  it.live("applies a change and builds indexes, once", function* () {
    const layer = yield* fresh
    const check = Effect.gen(function* () {
      assert.deepStrictEqual(yield* recorded, ["schema", "later_2", "later_3"])
      assert.deepStrictEqual(yield* validity("jobs_by_colour"), [{ valid: true }])
    })
    for (let n = 0; n < 2; n++) {
      yield* Effect.provide(check, Layer.fresh(layer)).pipe(withMigrations(addColumn, [index]))
    }
  })
})

describe("a later release", () => {
  it.live("four replicas that start together apply each migration once", () =>
    onPostgres((sql, layer) =>
      Effect.gen(function* () {
        yield* Effect.all(
          Array.from({ length: 4 }, () => start(Layer.fresh(layer))),
          { concurrency: "unbounded" },
        )
        const found = Effect.provideService(
          Effect.all([recorded, validity("jobs_by_colour")]),
          SqlClient.SqlClient,
          sql,
        )
        assert.deepStrictEqual(yield* found, [["schema", "later_2", "later_3"], [{ valid: true }]])
      }).pipe(withMigrations(addColumn, [index])),
    ),
  )

  it.live("gives way to a transaction that would deadlock with it, and tries again", () =>
    onPostgres((sql, layer) =>
      Effect.gen(function* () {
        const migrating = yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`LOCK TABLE orgs IN ROW EXCLUSIVE MODE`
            const migrating = yield* Effect.forkDetach(start(layer))
            const locks = sql`
              SELECT FROM pg_locks WHERE relation = 'jobs'::regclass AND granted AND mode = 'AccessExclusiveLock'`
            yield* until("the migration to lock jobs", locks, (rows) => rows.length > 0)
            // Waits before the migration waits for orgs: without lock_timeout, PostgreSQL ends this statement.
            yield* sql`INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
              VALUES ('j', 'o', 'w', true, 'queued', now(), now())`
            return migrating
          }),
        )
        yield* Fiber.join(migrating)
        assert.deepStrictEqual(yield* sql`SELECT id, colour FROM jobs`, [{ id: "j", colour: null }])
      }).pipe(
        withMigrations(
          Effect.andThen(addColumn, run("SELECT pg_sleep(0.3)")).pipe(
            Effect.andThen(run("ALTER TABLE orgs ADD COLUMN colour text")),
          ),
        ),
      ),
    ),
  )

  it.live("drops the invalid index of an interrupted build, and builds it again", () =>
    onPostgres((sql, layer) =>
      Effect.gen(function* () {
        yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('1', 'same', now()), ('2', 'same', now())`
        yield* Effect.ignore(sql`CREATE UNIQUE INDEX CONCURRENTLY orgs_name ON orgs (name)`)
        const valid = Effect.provideService(validity("orgs_name"), SqlClient.SqlClient, sql)
        assert.deepStrictEqual(yield* valid, [{ valid: false }])
        yield* sql`DELETE FROM orgs WHERE id = '2'`
        yield* start(layer)
        assert.deepStrictEqual(yield* valid, [{ valid: true }])
      }).pipe(withMigrations([names])),
    ),
  )

  it.live("an index that rows forbid leaves nothing, and the message has the SQLSTATE and what to do", () =>
    onPostgres((sql, layer) =>
      Effect.gen(function* () {
        yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('1', 'same', now()), ('2', 'same', now())`
        const { message } = (yield* Effect.flip(start(layer))) as Error
        assert.match(message, /^Migration 2 \(later_2\) failed: .*\(SQLSTATE 23505\)\. .*correct them, and start again/)
        const found = Effect.provideService(Effect.all([recorded, validity("orgs_name")]), SqlClient.SqlClient, sql)
        assert.deepStrictEqual(yield* found, [["schema"], []])
      }).pipe(withMigrations([names])),
    ),
  )

  it.live("a change that fails leaves nothing, keeps the migrations before it, and says why", () =>
    onPostgres((sql, layer) =>
      Effect.gen(function* () {
        const { message } = (yield* Effect.flip(start(layer))) as Error
        assert.match(message, /^Migration 3 \(later_3\) failed: division by zero \(SQLSTATE 22012\)/)
        assert.deepStrictEqual(yield* Effect.provideService(recorded, SqlClient.SqlClient, sql), ["schema", "later_2"])
        assert.deepStrictEqual(yield* sql`SELECT to_regclass('new_table') AS made`, [{ made: null }])
      }).pipe(withMigrations(addColumn, Effect.andThen(run("CREATE TABLE new_table ()"), run("SELECT 1 / 0")))),
    ),
  )
})
