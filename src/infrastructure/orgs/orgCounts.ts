import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { OrgLimitName } from "../../domain/orgs/OrgLimits.ts"
import type { CountedLimit } from "./OrgUsage.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"

/** The rows that each limit counts: a table, and conditions of disjoint parts, each with an index by org and id. */
export const countedRows: Readonly<
  Record<Exclude<CountedLimit, "pendingDeliveries">, { readonly table: string; readonly parts: ReadonlyArray<string> }>
> = {
  projects: { table: "projects", parts: ["true"] },
  keys: { table: "api_keys", parts: ["true"] },
  endpoints: { table: "webhook_endpoints", parts: ["true"] },
  schedules: { table: "job_schedules", parts: ["true"] },
  unfinishedJobs: { table: "jobs", parts: ["status = 'queued'", "status = 'running'"] },
}
export type CountedRows = keyof typeof countedRows

/** SQL: the number of rows that a limit counts for the row `org`, up to `upTo`. */
export const countUpTo = (name: CountedRows, upTo: string) => {
  const { table, parts } = countedRows[name]
  const rows = parts.map((part) => `SELECT 1 FROM ${table} WHERE org_id = org.id AND ${part}`).join(" UNION ALL ")
  return `(SELECT count(*) FROM (${rows} LIMIT ${upTo}) AS counted)`
}

/** SQL: the limit of the row `org`: its own, or the default. */
export const limitOf = (name: OrgLimitName, defaultValue: number) =>
  `coalesce((org.limits->>'${name}')::bigint, ${defaultValue})`

/** Rows that one statement counts. */
export const countBatchSize = 5_000

const bounded = orUnavailableWithin("sweep")

/**
 * Counts rows in the order of an index, batch by batch; each batch has the deadline of a sweep.
 *
 * @param count counts up to `countBatchSize` rows after a cursor (`undefined` is the start), and returns the last
 * cursor
 * @param upTo the count at which it stops
 */
export const countInBatches = Effect.fnUntraced(function* <Cursor, E, R>(
  count: (after: Cursor | undefined) => Effect.Effect<{ readonly n: number; readonly last: Cursor }, E, R>,
  upTo: number,
) {
  let total = 0
  let after: Cursor | undefined
  while (total < upTo) {
    const { n, last } = yield* bounded(count(after))
    total += n
    if (n < countBatchSize) break
    after = last
  }
  return total
})

/** Counts the rows of an org's limit batch by batch, up to about `upTo`. */
export const countRows = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  name: CountedRows,
  orgId: string,
  upTo: number,
) {
  const { table, parts } = countedRows[name]
  const batch = (part: string) => (after: string | undefined) =>
    Effect.map(
      sql<{ n: number; last: string }>`
        SELECT count(*)::int AS n, max(id) AS last FROM (
          SELECT id FROM ${sql.literal(table)} WHERE org_id = ${orgId} AND ${sql.literal(part)} AND id > ${after ?? ""}
          ORDER BY id LIMIT ${sql.literal(`${countBatchSize}`)}
        ) AS counted`,
      ([row]) => row!,
    )
  let total = 0
  for (const part of parts) total += yield* countInBatches(batch(part), upTo - total)
  return total
})
