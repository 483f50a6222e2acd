import { Clock, Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"

import { counted } from "../../domain/plural.ts"
import * as Migrations from "../database/Migrations.ts"
import * as PostgresDatabase from "../database/PostgresDatabase.ts"
import { type Check, clockCheck, fail, inBytes, ok, warn } from "./Check.ts"
import { texts } from "../database/fragments.ts"
import { databaseBytes } from "../database/Database.ts"
import { checkStorage } from "./checkStorage.ts"
import { checkSecrets } from "./checkSecrets.ts"

/** The oldest major version of PostgreSQL that this version supports. */
const oldestMajor = 14

const cannotBeUsed = (reason: string) =>
  fail(
    "database",
    `the database of DATABASE_URL cannot be used: ${reason}`,
    "check that PostgreSQL runs, and the host, port, user and password of DATABASE_URL",
  )

const checkServer = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ask = sql<{ version: string; major: number; millis: number }>`
    SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
      (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS millis`
  // Once to connect, which takes time, and once to measure.
  yield* ask
  const sentAt = yield* Clock.currentTimeMillis
  const [server] = yield* ask
  const answeredAt = yield* Clock.currentTimeMillis
  const { major, millis, version } = server!
  return [
    major < oldestMajor
      ? fail("database", `PostgreSQL ${version} is too old`, `use PostgreSQL ${oldestMajor} or newer`)
      : ok("database", `PostgreSQL ${version}`),
    clockCheck("the database", (sentAt + answeredAt) / 2 - millis, (answeredAt - sentAt) / 2),
  ]
})

/** Checks that LISTEN receives the NOTIFY of another connection, which the deletion of a key needs. */
const checkNotifications = (url: Redacted.Redacted<string>, sql: SqlClient.SqlClient) =>
  PostgresDatabase.subscriptions(url, sql).pipe(
    Effect.flatMap((subscribe) => subscribe("gatehouse_doctor", {})),
    Effect.scoped,
    Effect.as(ok("notifications", "LISTEN receives the NOTIFY of another connection")),
    Effect.catch((error) =>
      Effect.succeed(
        fail(
          "notifications",
          PostgresDatabase.describeSqlError(error),
          "set LISTEN_URL, or DATABASE_URL without it, to PostgreSQL itself or to a pooler in session mode",
        ),
      ),
    ),
  )

/** Replicas of the last minute, and one more: that of a command, or of a rolling upgrade. */
const countReplicas = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ replicas: number }>`
      SELECT count(*)::int + 1 AS replicas FROM replicas WHERE seen_at > now() - interval '1 minute'`,
    ([row]) => row!.replicas,
  ),
)

/** Compares the connections that replicas open with those that the server allows. */
const checkConnections = Effect.fnUntraced(function* (place: string, replicas: number, perReplica: number) {
  const sql = yield* SqlClient.SqlClient
  const [server] = yield* sql<{ allowed: number }>`
    SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS allowed`
  const needed = replicas * perReplica
  const found = `${place}: ${replicas} processes open up to ${needed} connections, of ${server!.allowed} that it allows`
  return needed <= server!.allowed
    ? ok("connections", found)
    : warn("connections", found, `set its max_connections to ${needed} and some for yourself, or run fewer replicas`)
})

interface Urls {
  readonly databaseUrl: Redacted.Redacted<string>
  readonly listenUrl: Redacted.Redacted<string> | undefined
  readonly nodes: ReadonlyMap<string, Redacted.Redacted<string>>
}

/** Checks a node: that it answers, and its migrations and secrets. */
const checkNode = (
  [name, url]: readonly [string, Redacted.Redacted<string>],
  { isOpen, orgs }: { readonly isOpen: boolean; readonly orgs: number },
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
  replicas: number,
) => {
  const cannot = (reason: string) =>
    fail("node", `${name} cannot be used: ${reason}`, "check that PostgreSQL runs there, and its URL in NODES")
  return PostgresDatabase.nodeClient(url).pipe(
    Effect.flatMap((sql) =>
      Effect.gen(function* () {
        const { check, complete } = yield* checkMigrations
        if (!complete) return [{ ...check, name: "node", message: `${name}: ${check.message}` }]
        const secrets = yield* checkSecrets(keys)
        const bytes = yield* databaseBytes(sql)
        const found = `${name} has ${counted(orgs, "org")} and ${inBytes(bytes)}, and ${isOpen ? "gets" : "gets no"} new orgs`
        const connections = yield* checkConnections(name, replicas, PostgresDatabase.poolSize + 2)
        return [ok("node", found), connections, { ...secrets, message: `on ${name}, ${secrets.message}` }]
      }).pipe(Effect.provideService(SqlClient.SqlClient, sql)),
    ),
    Effect.scoped,
    Effect.timeout("5 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannot(PostgresDatabase.describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannot("no response within 5 seconds")]),
    }),
  )
}

/** Checks every node of NODES. */
const checkNodes = Effect.fnUntraced(function* (
  nodes: Urls["nodes"],
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
) {
  const sql = yield* SqlClient.SqlClient
  const placed = yield* sql<{ name: string; isOpen: boolean; orgs: number }>`
    SELECT name, n.name IN (SELECT o.name FROM open_nodes o) AS "isOpen",
      (SELECT count(*)::int FROM orgs WHERE node = n.name) AS orgs
    FROM unnest(${texts(nodes.keys())}) AS n (name)`
  const ofName = new Map(placed.map((node) => [node.name, node]))
  const replicas = yield* countReplicas
  const checks = yield* Effect.forEach(nodes, (node) => checkNode(node, ofName.get(node[0])!, keys, replicas), {
    concurrency: 8,
  })
  return checks.flat()
})

/** Checks the PostgreSQL of DATABASE_URL, the one of LISTEN_URL, and those of NODES. Changes nothing. */
export const checkPostgres = (
  { databaseUrl: url, listenUrl = url, nodes }: Urls,
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
  retentionDays: number | undefined,
): Effect.Effect<ReadonlyArray<Check>> =>
  Effect.gen(function* () {
    const sql = yield* PostgresDatabase.client(url)
    const pooler = yield* PostgresDatabase.poolerFault(sql)
    if (pooler !== undefined) return [fail("database", pooler, "set DATABASE_URL, or the pooler, as the message says")]
    const database = Effect.provideService(SqlClient.SqlClient, sql)
    const server = yield* database(checkServer)
    const migrations = yield* database(checkMigrations)
    const notifications = yield* checkNotifications(listenUrl, sql)
    const stored = migrations.complete
      ? [
          yield* database(
            Effect.flatMap(countReplicas, (replicas) =>
              checkConnections("the database", replicas, PostgresDatabase.poolSize + 2),
            ),
          ),
          yield* database(checkSecrets(keys)),
          yield* database(checkStorage(retentionDays)),
          ...(yield* database(checkNodes(nodes, keys))),
        ]
      : []
    return [...server, migrations.check, notifications, ...stored]
  }).pipe(
    Effect.scoped,
    Effect.timeout("20 seconds"),
    Effect.catchTags({
      SqlError: (error) => Effect.succeed([cannotBeUsed(PostgresDatabase.describeSqlError(error))]),
      TimeoutError: () => Effect.succeed([cannotBeUsed("no response within 20 seconds")]),
    }),
    Effect.provide(Reactivity.layer),
  )

/** Compares the migrations of the database with those of this version. */
export const checkMigrations = Effect.map(Migrations.compare, (state) => ({
  check: describeMigrations(state),
  complete: state.fault === undefined && state.applied >= state.known,
}))

const describeMigrations = ({ applied, fault, known }: Migrations.State): Check => {
  if (fault !== undefined) return fail("migrations", fault, "see docs/upgrading.md")
  if (applied === known) return ok("migrations", `all are applied, the newest has number ${known}`)
  if (applied > known) {
    const found = `the database is at migration ${applied}, but this version knows only ${known}`
    return fail("migrations", found, "start the newer version")
  }
  const found =
    applied === 0 ? "none is applied" : `the database is at migration ${applied}; this version needs ${known}`
  return warn("migrations", found, "run gatehouse migrate, or start the service, which migrates first")
}
