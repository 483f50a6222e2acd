import type { PgClient } from "@effect/sql-pg"
import { Clock, Context, Deferred, Effect, Fiber, Redacted, Schedule, Stream } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { LRUCache } from "lru-cache"
import { Unavailable } from "../../domain/Errors.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"
import { StartupError } from "../StartupError.ts"
import * as Batches from "./Batches.ts"
import { texts } from "./fragments.ts"
import * as Migrations from "./Migrations.ts"
import { make as makeNotifications, type Notifications } from "./Notifications.ts"
import { Admission, answerOrUnavailable, makeAdmission, orgMoves, orUnavailable } from "./orUnavailable.ts"
import { describeSqlError, migrationClient, nodeClient, subscriptions } from "./PostgresDatabase.ts"

/** A PostgreSQL that has what the orgs placed on it own: jobs, events, deliveries, endpoints, schedules. */
export interface Node {
  readonly name: string
  readonly sql: PgClient.PgClient
  /** Its connections, so that a slow node takes none of another's. */
  readonly admission: ReturnType<typeof makeAdmission>
  readonly notifications: Notifications["Service"]
  /** Waits until it has all migrations. */
  readonly migrated: Effect.Effect<void>
  readonly isMigrated: () => boolean
}

/** The nodes of NODES, and which orgs are placed on them (ADR 31). Every other org is on the platform's database. */
export interface NodesService {
  readonly all: ReadonlyArray<Node>
  /** The node of an org; `undefined`: the platform's database. Fails while the node is not ready. */
  readonly of: (orgId: string) => Effect.Effect<Node | undefined, Unavailable>
  /** The same for an org that moves: waits up to two seconds until it is not on this node any more. */
  readonly movedFrom: (orgId: string, node: Node | undefined) => Effect.Effect<Node | undefined, Unavailable>
  readonly named: (name: string) => Effect.Effect<Node, Unavailable>
  /** The name of the node of an org as far as memory knows; empty: the platform's database. */
  readonly known: (orgId: string) => string | undefined
  /** The open node with the fewest orgs that answers, for a new org; `undefined`: no node is open. */
  readonly forNewOrg: Effect.Effect<Node | undefined, SqlError.SqlError | Unavailable>
}

export const noNodes: NodesService = {
  all: [],
  of: () => Effect.succeed(undefined),
  movedFrom: () => Effect.fail(unreachable),
  named: () => Effect.fail(unreachable),
  known: () => undefined,
  forNewOrg: Effect.succeed(undefined),
}

export const Nodes = Context.Reference<NodesService>("gatehouse/infrastructure/database/Nodes", {
  defaultValue: () => noNodes,
})

export const unreachable = new Unavailable({ error: "The database of the org cannot be reached; try again." })

/** Orgs whose place is in memory: those go on while the platform's database is down. An org takes 100 bytes. */
const maxPlacedOrgs = 200_000
/** The channel on which a move tells the id of its org, in the transaction that places the org on another database. */
export const placementChannel = "gatehouse_org_moved"
/** How long a request waits for its org, and how often it looks. */
const moveWait = { times: 40, interval: "50 millis" } as const
/** How long a request waits for the platform's database when memory knows the node of its org. */
const lookUpTime = "500 millis"
const silentMillis = 1_000
/** Orgs that one statement looks up. */
const maxLookups = 512
/** How long a figure of all databases waits for one of them. */
const answerTime = "1 second"

/** Whether a node answers within a second. Detached: interrupting a statement on a dead connection takes longer. */
export const answers = ({ admission, sql }: Node) =>
  Effect.forkDetach(Effect.provideService(orUnavailable(sql`SELECT 1`), Admission, admission)).pipe(
    Effect.flatMap(Fiber.join),
    Effect.timeout(answerTime),
    Effect.isSuccess,
  )

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
  return {
    name,
    sql,
    admission: makeAdmission(),
    notifications: makeNotifications(yield* subscriptions(url, sql)),
    migrated: Deferred.await(migrated),
    isMigrated: () => Deferred.isDoneUnsafe(migrated),
  } satisfies Node
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
export const make = Effect.fnUntraced(function* (
  sql: PgClient.PgClient,
  urls: Urls,
  notifications: Notifications["Service"],
) {
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

  // What is in memory is used while this process hears of moves; without, only if the platform's database is down.
  let hears = false
  let epoch = 0
  /** Until when requests do not look for the platform's database, which has just not answered. */
  let silentUntil = -Infinity
  const clock = yield* Clock.Clock
  const nowMillis = () => monotonicMillisOf(clock)
  yield* notifications.listen(placementChannel).pipe(
    Stream.runForEach((notification) =>
      Effect.sync(() => {
        epoch++
        if (notification._tag === "Message") placed.delete(notification.payload)
        else if (notification._tag === "Up") placed.clear()
        hears = notification._tag !== "Down"
      }),
    ),
    Effect.forkScoped,
  )
  const databaseOf = (name: string | undefined) =>
    name === undefined || name === "" ? Effect.succeed(undefined) : named(name)
  const find = (orgId: string) =>
    Effect.suspend(() => {
      const before = epoch
      return Effect.map(
        answerOrUnavailable<string | undefined, Unavailable>((done) => lookUp(orgId, done)),
        (name) => {
          // An org that does not exist (yet) is not remembered, nor one that may have moved meanwhile.
          if (name !== undefined && before === epoch) placed.set(orgId, name)
          return name
        },
      )
    })

  return {
    all,
    named,
    known: (orgId) => placed.get(orgId),

    of: (orgId) =>
      Effect.suspend(() => {
        const known = placed.get(orgId)
        if (known !== undefined && (hears || nowMillis() < silentUntil)) return databaseOf(known)
        const found =
          known === undefined
            ? find(orgId)
            : Effect.timeout(find(orgId), lookUpTime).pipe(
                Effect.catch(() =>
                  Effect.sync(() => {
                    silentUntil = nowMillis() + silentMillis
                    return known
                  }),
                ),
              )
        return Effect.flatMap(found, databaseOf)
      }),

    movedFrom: (orgId, node) =>
      find(orgId).pipe(
        Effect.filterOrFail(
          (name) => name !== (node?.name ?? ""),
          () => orgMoves,
        ),
        Effect.retry(Schedule.max([Schedule.spaced(moveWait.interval), Schedule.recurs(moveWait.times)])),
        Effect.flatMap(databaseOf),
      ),

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
 * Asks the platform's database and every node. Leaves out nodes that do not answer within a second: figures, lists and
 * searches of all orgs are shown without theirs.
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

/**
 * The node that the row of an org names; `undefined`: the platform's database. What a transaction decides is read in
 * it.
 */
export const nodeOfRow = ({ named }: NodesService, name: string | null | undefined) =>
  name == null ? Effect.succeed(undefined) : named(name)
