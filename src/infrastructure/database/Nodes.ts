import type { PgClient } from "@effect/sql-pg"
import { Context, Deferred, Effect, Fiber, Redacted, Schedule } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { LRUCache } from "lru-cache"
import { Unavailable } from "../../domain/Errors.ts"
import { StartupError } from "../StartupError.ts"
import * as Batches from "./Batches.ts"
import { texts } from "./fragments.ts"
import * as Migrations from "./Migrations.ts"
import { Admission, answerOrUnavailable, makeAdmission, orUnavailable } from "./orUnavailable.ts"
import { describeSqlError, migrationClient, nodeClient } from "./PostgresDatabase.ts"

/** A PostgreSQL that has what the orgs placed on it own: jobs, events, deliveries, endpoints, schedules. */
export interface Node {
  readonly name: string
  readonly sql: PgClient.PgClient
  /** Its connections, so that a slow node takes none of another's. */
  readonly admission: ReturnType<typeof makeAdmission>
  /** Waits until it has all migrations. */
  readonly migrated: Effect.Effect<void>
  readonly isMigrated: () => boolean
}

/** The nodes of NODES, and which orgs are placed on them (ADR 31). Every other org is on the platform's database. */
export interface NodesService {
  readonly all: ReadonlyArray<Node>
  /** The node of an org; `undefined`: the platform's database. Fails while the node is not ready. */
  readonly of: (orgId: string) => Effect.Effect<Node | undefined, Unavailable>
  readonly named: (name: string) => Effect.Effect<Node, Unavailable>
  /** The open node with the fewest orgs that answers, for a new org; `undefined`: no node is open. */
  readonly forNewOrg: Effect.Effect<Node | undefined, SqlError.SqlError | Unavailable>
}

export const noNodes: NodesService = {
  all: [],
  of: () => Effect.succeed(undefined),
  named: () => Effect.fail(unreachable),
  forNewOrg: Effect.succeed(undefined),
}

export const Nodes = Context.Reference<NodesService>("gatehouse/infrastructure/database/Nodes", {
  defaultValue: () => noNodes,
})

const unreachable = new Unavailable({ error: "The database of the org cannot be reached; try again." })

/** Orgs whose place is in memory: those go on while the platform's database is down. An org takes 100 bytes. */
const maxPlacedOrgs = 200_000
/** Orgs that one statement looks up. */
const maxLookups = 512
/** How long a figure of all databases waits for one of them. */
const answerTime = "1 second"

/** Whether a node answers within a second. Detached: interrupting a statement on a dead connection takes longer. */
const answers = ({ sql }: Node) =>
  Effect.forkDetach(sql`SELECT 1`).pipe(Effect.flatMap(Fiber.join), Effect.timeout(answerTime), Effect.isSuccess)

/** Migrates a node; while that fails, tries again. Logs each new reason once. */
const migrateNode = (name: string, url: Redacted.Redacted<string>) => {
  let logged = ""
  return migrationClient(url).pipe(
    Effect.flatMap((sql) => Effect.provideService(Migrations.migrate, SqlClient.SqlClient, sql)),
    Effect.scoped,
    Effect.tapError((error) => {
      const reason = SqlError.isSqlError(error) ? describeSqlError(error) : error.message
      if (reason === logged) return Effect.void
      logged = reason
      return Effect.logWarning(`The node ${name} cannot be used yet: ${reason}`)
    }),
    Effect.retry(Schedule.spaced("1 second")),
    // A retry without an end: what is left is not an error.
    Effect.orDie,
  )
}

const open = Effect.fnUntraced(function* ([name, url]: readonly [string, Redacted.Redacted<string>]) {
  const migrated = yield* Deferred.make<void>()
  const sql = yield* nodeClient(url)
  yield* migrateNode(name, url).pipe(Effect.andThen(Deferred.succeed(migrated, undefined)), Effect.forkScoped)
  const isMigrated = () => Deferred.isDoneUnsafe(migrated)
  return { name, sql, admission: makeAdmission(), migrated: Deferred.await(migrated), isMigrated } satisfies Node
})

type Urls = ReadonlyMap<string, Redacted.Redacted<string>>

/** Fails when NODES does not name a node that has orgs, or is open to new ones. */
export const checkNames = Effect.fnUntraced(function* (urls: Urls) {
  const sql = yield* SqlClient.SqlClient
  const names = texts(urls.keys())
  const [missing] = yield* sql<{ node: string }>`
    SELECT node FROM (
      (SELECT node FROM orgs WHERE node IS NOT NULL AND node <> ALL(${names}) LIMIT 1)
      UNION ALL SELECT name FROM open_nodes WHERE name <> ALL(${names})
    ) AS used LIMIT 1`
  if (missing === undefined) return
  return yield* new StartupError({
    message: `NODES does not name the node ${missing.node}, which has orgs, or is open to new ones. Add it`,
  })
})

/** Opens the nodes of NODES. */
export const make = Effect.fnUntraced(function* (sql: PgClient.PgClient, urls: Urls) {
  if (urls.size === 0) return noNodes
  const all = yield* Effect.forEach(urls, open)
  const byName = new Map(all.map((node) => [node.name, node]))

  const placed = new LRUCache<string, string>({ max: maxPlacedOrgs })
  const lookUp = yield* Batches.make(
    (orgIds: ReadonlyArray<string>) =>
      sql<{ id: string; node: string }>`
        SELECT id, coalesce(node, '') AS node FROM orgs WHERE id = ANY(${texts(orgIds)})`.pipe(
        Effect.map((rows) => new Map(rows.map(({ id, node }) => [id, node]))),
        orUnavailable,
      ),
    maxLookups,
  )
  const named = (name: string) => {
    const node = byName.get(name)
    return node?.isMigrated() === true ? Effect.succeed(node) : Effect.fail(unreachable)
  }

  return {
    all,
    named,

    of: (orgId) =>
      Effect.suspend(() => {
        const known = placed.get(orgId)
        if (known !== undefined) return known === "" ? Effect.succeed(undefined) : named(known)
        return Effect.flatMap(
          answerOrUnavailable<string | undefined, Unavailable>((done) => lookUp(orgId, done)),
          (name) => {
            // An org that does not exist (yet) is not remembered.
            if (name === undefined) return Effect.succeed(undefined)
            placed.set(orgId, name)
            return name === "" ? Effect.succeed(undefined) : named(name)
          },
        )
      }),

    forNewOrg: Effect.gen(function* () {
      const open = yield* sql<{ name: string }>`
        SELECT name FROM open_nodes ORDER BY (SELECT count(*) FROM orgs WHERE node = open_nodes.name), name`
      for (const { name } of open) {
        const node = byName.get(name)
        if (node?.isMigrated() === true && (yield* answers(node))) return node
      }
      return open.length === 0 ? undefined : yield* unreachable
    }),
  } satisfies NodesService
})

/**
 * Asks the platform's database and every node. Leaves out nodes that do not answer within a second: figures of all
 * orgs are shown without theirs.
 */
export const everywhere = <A, E>(
  sql: SqlClient.SqlClient,
  { all }: NodesService,
  ask: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>,
): Effect.Effect<ReadonlyArray<A>, E> => {
  if (all.length === 0) return Effect.map(ask(sql), (answer) => [answer])
  const asked = Effect.forEach(
    all,
    (node) =>
      // Detached: on a dead connection, the interruption of a statement takes longer than the statement.
      Effect.forkDetach(Effect.provideService(ask(node.sql), Admission, node.admission)).pipe(
        Effect.flatMap(Fiber.join),
        Effect.timeout(answerTime),
        Effect.option,
      ),
    { concurrency: "unbounded" },
  )
  return Effect.zipWith(
    ask(sql),
    asked,
    (own, answers) => [own, ...answers.flatMap((answer) => (answer._tag === "Some" ? [answer.value] : []))],
    { concurrent: true },
  )
}

/** How long a command waits for a node. */
const commandTime = "30 seconds"

/** Places new orgs on a node from now on. Fails with what is in the way. */
export const openNode = Effect.fnUntraced(function* (name: string) {
  const sql = yield* SqlClient.SqlClient
  const node = (yield* Nodes).all.find((one) => one.name === name)
  const refuse = (message: string) => new StartupError({ message })
  if (node === undefined) return yield* refuse(`NODES does not name ${name}`)
  yield* Effect.timeoutOrElse(node.migrated, {
    duration: commandTime,
    orElse: () => Effect.fail(refuse(`The node ${name} does not answer. Run gatehouse doctor`)),
  })
  const own = yield* node.sql`SELECT FROM replicas LIMIT 1`
  if (own.length > 0) {
    return yield* refuse(
      `The database of the node ${name} is one of DATABASE_URL: replicas use it. Give the node an empty one`,
    )
  }
  // A replica that does not know the node would look for its orgs on the platform's database.
  const [others] = yield* sql<{ replicas: number }>`
    SELECT count(*)::int AS replicas FROM replicas
    WHERE seen_at > now() - interval '1 minute' AND NOT ${name} = ANY(coalesce(nodes, '{}'))`
  if (others!.replicas > 0) {
    return yield* refuse(
      `${others!.replicas} replicas run without the node ${name}: set NODES on all replicas, restart them, and try again`,
    )
  }
  yield* sql`INSERT INTO open_nodes (name) VALUES (${name}) ON CONFLICT DO NOTHING`
})

/** Places no more new orgs on a node. */
export const closeNode = (name: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql`DELETE FROM open_nodes WHERE name = ${name}`))
