import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { DefaultLimits, limitReached } from "../../domain/orgs/OrgLimits.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { texts } from "../database/arrays.ts"
import { limitOf } from "./orgCounts.ts"

/** How many bytes a stored text has. */
export const byteLength = (text: string | null) => (text === null ? 0 : Buffer.byteLength(text))

/** How many orgs are written down in one statement. */
const batch = 1_000

/** Changes by how much orgs have stored; never below zero. In one order, so that no two wait for each other. */
const change = (sql: SqlClient.SqlClient, bytes: Iterable<readonly [orgId: string, bytes: number]>) => {
  const all = [...bytes]
  const [orgs, by] = [texts(all.map(([orgId]) => orgId)), texts(all.map(([, by]) => `${by}`))]
  return sql`
    INSERT INTO org_usage (org_id, stored_bytes)
    SELECT org.id, by::bigint FROM unnest(${orgs}, ${by}) AS changed (id, by) JOIN orgs org ON org.id = changed.id
    WHERE by::bigint > 0 OR EXISTS (SELECT FROM org_usage WHERE org_id = org.id) ORDER BY org.id
    ON CONFLICT (org_id) DO UPDATE SET stored_bytes = greatest(0, org_usage.stored_bytes + excluded.stored_bytes)`
}

/**
 * Subtracts what orgs no longer have stored, in the transaction that removes it: once for each batch of rows, never for
 * each request. For retention, and for whatever else removes jobs and events.
 *
 * @param bytes by org: octet_length of what the removed rows had of input, result, error, mapped_stack and body
 */
export const subtractStoredBytes = (sql: SqlClient.SqlClient, bytes: ReadonlyMap<string, number>) =>
  bytes.size === 0
    ? Effect.void
    : Effect.asVoid(
        change(
          sql,
          [...bytes].map(([orgId, by]) => [orgId, -by] as const),
        ),
      )

/** Writes down what this replica has counted of stored bytes. What cannot be written is kept for the next time. */
export const writeStoredBytes = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, usage: OrgUsage["Service"]) {
  let written = batch
  while (written === batch) {
    const some = usage.unwritten(batch)
    written = some.length
    if (written === 0) return
    yield* orUnavailableWithin("sweep")(change(sql, some))
    // Meanwhile they counted twice, which errs on the side of the limit.
    for (const [orgId, bytes] of some) usage.addBytes(orgId, -bytes)
  }
})

/**
 * Holds the limit of stored bytes. What this replica has stored counts at once, what others have after they have written
 * it down, some seconds later: by that much the limit can be exceeded. A replica that is killed loses the count of its
 * last seconds.
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = limitOf("storedBytes", (yield* DefaultLimits).storedBytes)
  const left = `${limit} - coalesce((SELECT stored_bytes FROM org_usage WHERE org_id = org.id), 0)`
  const atMostLeft = sql.literal(`<= ${left}`)
  const always = sql.literal("true")

  return {
    /** The condition of an INSERT … SELECT … FROM orgs org that stores bytes, which `storing` has counted already. */
    fits: (orgId: string, bytes: number) =>
      bytes === 0 ? always : sql`${`${usage.unwrittenBytes(orgId)}`}::bigint ${atMostLeft}`,

    /** SQL: how many bytes the row `org` has left, of those that are written down; below zero past its limit. */
    left: sql.literal(left),

    /** Counts the bytes that an effect stores while it runs, and for good when `isStored` says so of what it gives. */
    storing: <A, E, R>(orgId: string, bytes: number, isStored: (made: A) => boolean, insert: Effect.Effect<A, E, R>) =>
      Effect.suspend(() => {
        usage.addBytes(orgId, bytes)
        return Effect.onExit(insert, (exit) =>
          Effect.sync(() => {
            if (!Exit.isSuccess(exit) || !isStored(exit.value)) usage.addBytes(orgId, -bytes)
          }),
        )
      }),

    /** Says why nothing was inserted, when it was not for the number of rows. */
    refuse: (orgId: string) =>
      sql<{ limit: number }>`SELECT ${sql.literal(limit)}::float8 AS "limit" FROM orgs org WHERE id = ${orgId}`.pipe(
        orUnavailable,
        Effect.flatMap(([org]) =>
          org === undefined ? Effect.die(new Error("The org does not exist")) : limitReached("storedBytes", org.limit),
        ),
      ),
  }
})
