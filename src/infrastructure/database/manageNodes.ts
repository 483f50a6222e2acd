import { DateTime, Effect, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { StartupError } from "../StartupError.ts"
import { idAt } from "./fragments.ts"
import { Nodes } from "./Nodes.ts"

// What an administrator does with nodes, by commands: replicas read it from the platform's database.

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
  yield* refuseUnlessKnown(name)
  yield* sql`INSERT INTO open_nodes (name) VALUES (${name}) ON CONFLICT DO NOTHING`
})

/** Fails while a replica does not know a node: it would look for its orgs on the platform's database. */
const refuseUnlessKnown = Effect.fnUntraced(function* (name: string) {
  const sql = yield* SqlClient.SqlClient
  const [others] = yield* sql<{ replicas: number }>`
    SELECT count(*)::int AS replicas FROM replicas
    WHERE seen_at > now() - interval '1 minute' AND NOT ${name} = ANY(coalesce(nodes, '{}'))`
  if (others!.replicas === 0) return
  return yield* new StartupError({
    message: `${others!.replicas} replicas run without the node ${name}: set NODES on all replicas, restart them, and try again`,
  })
})

/** Places no more new orgs on a node. */
export const closeNode = (name: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql`DELETE FROM open_nodes WHERE name = ${name}`))

/** What `--to` of a move names the platform's database. */
const platformName = "platform"

/**
 * Begins to move an org to a node, or to the platform's database, which the replicas do in the background; does nothing
 * when the org is there. Returns an effect that waits until the org is there. Fails with what is in the way.
 */
export const moveOrg = Effect.fnUntraced(function* (orgId: string, to: string) {
  const sql = yield* SqlClient.SqlClient
  const nodes = yield* Nodes
  const refuse = (message: string) => new StartupError({ message })
  const name = to === platformName ? null : to
  if (name !== null) {
    if (nodes.all.every((node) => node.name !== name)) return yield* refuse(`NODES does not name ${name}`)
    yield* refuseUnlessKnown(name)
  }
  const now = DateTime.toDateUtc(yield* DateTime.now)
  const place = sql<{ isThere: boolean; other: string | null }>`
    SELECT node IS NOT DISTINCT FROM ${name} AS "isThere",
      (SELECT coalesce(nullif(node, ''), ${platformName}) FROM sweeps WHERE org_id = orgs.id AND kind = 'move') AS other
    FROM orgs WHERE id = ${orgId}`
  yield* sql`
    INSERT INTO sweeps (id, org_id, kind, node, source, created_at)
    SELECT ${idAt(now.getTime())} || upper(left(md5(random()::text), 16)), id, 'move', ${name ?? ""}, coalesce(node, ''), ${now}
    FROM orgs WHERE id = ${orgId} AND node IS DISTINCT FROM ${name} ON CONFLICT DO NOTHING`
  const [org] = yield* place
  if (org === undefined) return yield* refuse(`There is no org ${orgId}`)
  if (org.other !== null && org.other !== to) {
    return yield* refuse(`The org moves to ${org.other}, or its old rows are erased. Try again in a few minutes`)
  }
  return place.pipe(
    Effect.repeat({ schedule: Schedule.spaced("200 millis"), until: ([org]) => org === undefined || org.isThere }),
    Effect.asVoid,
  )
})
