import { Effect, Layer, type Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { StartupError } from "../../StartupError.ts"
import * as Migrations from "../Migrations.ts"
import * as PostgresDatabase from "../PostgresDatabase.ts"
import { shardSql, schemaOf } from "../shards.ts"
import { distributionOf } from "./placements.ts"

/** What `distribute` is going to do, or has left to do. */
export interface Plan {
  readonly shards: number
  /** The nodes that shards go to. */
  readonly nodes: ReadonlyArray<string>
  /** Shards without a distributed schema. */
  readonly missing: ReadonlyArray<number>
  /** The rows of each table that are not in a shard, as PostgreSQL estimates them. */
  readonly rows: ReadonlyArray<{ readonly table: string; readonly rows: number }>
  /** Whether nothing is left to do. */
  readonly isDone: boolean
}

const refuse = (message: string) => Effect.fail(new StartupError({ message }))

/** A replica that was seen within so many seconds counts as running. */
const replicaSeconds = 60

const checkExtension = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [extension] = yield* sql`SELECT extversion FROM pg_extension WHERE extname = 'citus'`
  if (extension === undefined) {
    return yield* refuse("The database does not have the extension citus. Create it on every node, and add the workers")
  }
})

/** Fails while a replica runs, because its changes would be lost. */
const checkReplicas = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [running] = yield* sql<{ count: number }>`
    SELECT count(*)::int AS count FROM replicas WHERE seen_at > now() - make_interval(secs => ${replicaSeconds})`
  if (running!.count > 0) {
    return yield* refuse(
      `${running!.count} replicas of the service were seen in the last minute. Stop them, wait a minute, and run distribute again`,
    )
  }
})

/** The nodes that Citus puts shards on. */
const findNodes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const nodes = yield* sql<{ node: string }>`
    SELECT nodename || ':' || nodeport AS node FROM pg_dist_node
    WHERE isactive AND shouldhaveshards AND noderole = 'primary' ORDER BY nodeid`
  return nodes.length > 0
    ? nodes.map(({ node }) => node)
    : yield* refuse("Citus has no node for shards. Add one with citus_add_node, and run distribute again")
})

/** Finds what is left to do. Changes nothing. */
export const plan = Effect.fn("Distribute.plan")(function* (wanted: number) {
  const sql = yield* SqlClient.SqlClient
  yield* checkExtension
  const nodes = yield* findNodes
  const distribution = yield* distributionOf
  const shards = distribution?.shards ?? wanted
  if (shards !== wanted) {
    return yield* refuse(
      `The database has ${shards} shards, and their number cannot change. Run distribute --shards ${shards}`,
    )
  }
  const made = new Set(
    (yield* sql<{ schema: string }>`
      SELECT n.nspname AS schema FROM pg_dist_schema s JOIN pg_namespace n ON n.oid = s.schemaid`).map(
      (row) => row.schema,
    ),
  )
  const all = Array.from({ length: shards }, (_, shard) => shard)
  const rows = yield* Effect.forEach(tenantTables, (table) =>
    Effect.map(
      sql<{ rows: number }>`
        SELECT CASE WHEN EXISTS (SELECT FROM ${sql(`public.${table}`)} WHERE ${ofTenants(sql, table)})
          THEN greatest(reltuples, 1) ELSE 0 END::float8 AS rows
        FROM pg_class WHERE oid = to_regclass(${`public.${table}`})`,
      ([row]) => ({ table, rows: row?.rows ?? 0 }),
    ),
  )
  const missing = all.filter((shard) => !made.has(schemaOf(shard)))
  const isDone = distribution?.isDone === true && missing.length === 0 && rows.every((table) => table.rows === 0)
  if (!isDone) yield* checkReplicas
  return { shards, nodes, missing, rows, isDone } satisfies Plan
})

/** From here on, a replica that does not know the shards fails. Otherwise it would write where nobody reads. */
const begin = Effect.fnUntraced(function* (shards: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS public.gatehouse_distribution (
      buckets integer NOT NULL,
      started_at timestamptz NOT NULL DEFAULT now(),
      done_at timestamptz,
      migrated_to integer NOT NULL DEFAULT 0
    )`
  yield* sql`
    INSERT INTO public.gatehouse_distribution (buckets)
    SELECT ${shards} WHERE NOT EXISTS (SELECT FROM public.gatehouse_distribution)`
  yield* sql`
    CREATE OR REPLACE FUNCTION public.gatehouse_is_distributed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'The rows of % are in shards; this program writes to the schema public', TG_TABLE_NAME;
    END $$`
  for (const table of tenantTables) {
    // Sweeps that erase an org or a project begin on the platform.
    const isErasure = table === "sweeps" ? sql`WHEN (NEW.kind <> 'erase')` : sql``
    yield* sql`
      CREATE OR REPLACE TRIGGER gatehouse_is_distributed BEFORE INSERT ON ${sql(`public.${table}`)}
      FOR EACH ROW ${isErasure} EXECUTE FUNCTION public.gatehouse_is_distributed()`
  }
})

/** Creates the schema of a shard with all tables, and distributes it. */
const createShard = Effect.fnUntraced(function* (shard: number) {
  const sql = yield* SqlClient.SqlClient
  const schema = schemaOf(shard)
  yield* sql`CREATE SCHEMA IF NOT EXISTS ${sql(schema)}`
  yield* Migrations.migrateShard(shard)
  // Citus has no triggers on distributed tables. Nothing in the service changes an entry.
  yield* sql`DROP TRIGGER IF EXISTS audit_log_stays ON ${sql(`${schema}.audit_log`)}`
  yield* sql`SELECT citus_schema_distribute(${schema}::text::regnamespace)`
})

/**
 * Distributes a migrated database: creates the shards, and moves the tenants' rows into them. It can be interrupted at
 * any time and run again.
 *
 * @param onStep called with what was done
 */
export const distribute = Effect.fn("Distribute.distribute")(function* (
  { shards, missing, rows }: Plan,
  onStep: (step: string) => Effect.Effect<void> = () => Effect.void,
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.withTransaction(begin(shards))
  for (const shard of missing) {
    yield* createShard(shard)
    yield* onStep(`Shard ${shard + 1} of ${shards} is created`)
  }
  const filled = rows.filter((table) => table.rows > 0).map(({ table }) => table)
  for (const table of ["orgs", ...filled]) {
    yield* moveRows(table, shards)
    yield* onStep(`The rows of ${table} are in their shards`)
  }
  yield* sql`UPDATE public.gatehouse_distribution SET done_at = coalesce(done_at, now())`
})

/**
 * Waits until no other run works on the database: PostgreSQL still executes the last statement of a run that was
 * killed. The lock ends with the connection.
 */
const waitForOtherRun = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const lock = sql.literal("hashtext('gatehouse distribute')")
  const [row] = yield* sql<{ isFree: boolean }>`SELECT pg_try_advisory_lock(${lock}) AS "isFree"`
  if (row!.isFree) return
  yield* Effect.logInfo("Waits for another run of distribute to end")
  yield* sql`SELECT pg_advisory_lock(${lock})`
})

/**
 * Plans, and distributes the database of a URL. Returns the plan. Fails with a one-line `StartupError`.
 *
 * @param onPlan called with the plan before anything is changed
 */
export const run = (
  url: Redacted.Redacted<string>,
  options: {
    readonly shards: number
    readonly isPlanOnly: boolean
    readonly onPlan: (plan: Plan) => Effect.Effect<void>
    readonly onStep: (step: string) => Effect.Effect<void>
  },
) =>
  Effect.gen(function* () {
    if (!options.isPlanOnly) yield* waitForOtherRun
    const found = yield* plan(options.shards)
    yield* options.onPlan(found)
    if (!options.isPlanOnly && !found.isDone) yield* distribute(found, options.onStep)
    return found
  }).pipe(
    Effect.provide(
      Layer.effect(SqlClient.SqlClient, PostgresDatabase.migrationClient(url)).pipe(Layer.provide(Reactivity.layer)),
    ),
    Effect.catchTag("SqlError", ({ reason }) => refuse(`The database cannot be distributed: ${String(reason.cause)}`)),
  )

/**
 * SQL: whether a row belongs in a shard. Sweeps that erase an org or a project begin on the platform, and stay there.
 */
export const ofTenants = (sql: SqlClient.SqlClient, table: string) =>
  table === "sweeps" ? sql`kind <> 'erase'` : sql`true`

/** The columns of a table that can be inserted. */
const columnsOf = Effect.fnUntraced(function* (table: string) {
  const sql = yield* SqlClient.SqlClient
  const columns = yield* sql<{ name: string }>`
    SELECT attname AS name FROM pg_attribute
    WHERE attrelid = to_regclass(${`public.${table}`}) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attnum`
  return sql.literal(columns.map(({ name }) => `"${name}"`).join(", "))
})

/**
 * Moves the rows of a table of the platform's schema into the shards, each shard in one transaction; copies those of
 * `orgs`. A row that an interrupted run has copied and not deleted is not copied again. A temporary index finds the
 * rows of each shard: without it, the whole table is read for each of them.
 */
export const moveRows = Effect.fnUntraced(function* (table: string, shards: number) {
  const sql = yield* SqlClient.SqlClient
  const columns = yield* columnsOf(table)
  const from = sql(`public.${table}`)
  const index = `gatehouse_bucket_of_${table}`
  const shardOfRow = sql.literal(shardSql(table === "orgs" ? "id" : "org_id", shards))
  const move = Effect.fnUntraced(function* (shard: number) {
    const isOfShard = sql`${shardOfRow} = ${sql.literal(String(shard))} AND ${ofTenants(sql, table)}`
    yield* sql`LOCK TABLE ${from} IN SHARE ROW EXCLUSIVE MODE`
    yield* sql`
      INSERT INTO ${sql(`${schemaOf(shard)}.${table}`)} (${columns}) SELECT ${columns} FROM ${from} WHERE ${isOfShard}
      ON CONFLICT DO NOTHING`
    if (table !== "orgs") yield* sql`DELETE FROM ${from} WHERE ${isOfShard}`
  })
  yield* sql`CREATE INDEX IF NOT EXISTS ${sql(index)} ON ${from} (${shardOfRow})`
  for (let shard = 0; shard < shards; shard++) yield* sql.withTransaction(move(shard))
  yield* sql`DROP INDEX ${sql(`public.${index}`)}`
})

/**
 * The tables of tenants, which lie in shards. `test/infrastructure/database/citus` compares both lists with the
 * catalog, so that a new table is in one of them.
 */
export const tenantTables = [
  "webhook_endpoints",
  "org_signing_keys",
  "endpoint_paces",
  "jobs",
  "job_schedules",
  "events",
  "deliveries",
  "delivery_attempts",
  "pending_deliveries",
  "failing_callbacks",
  "sweeps",
  "org_usage",
] as const

/**
 * The tables of the platform, in the schema `public` of the coordinator. Every shard has them too, so that a migration
 * is the same everywhere. They are empty there, except `orgs` (a copy of the shard's orgs with their limits) and
 * `audit_log` (the entries of changes in the shard).
 */
export const platformTables = [
  "gatehouse_migrations",
  "orgs",
  "org_owners",
  "projects",
  "api_keys",
  "key_counters",
  "key_usage",
  "deployments",
  "project_docs",
  "docs_pages",
  "docs_questions",
  "idempotency_keys",
  "audit_log",
  "sessions",
  "activity_counts",
  "endpoint_failures",
  "replicas",
] as const
