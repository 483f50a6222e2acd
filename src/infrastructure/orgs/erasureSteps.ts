import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { texts } from "../database/arrays.ts"

export type Sql = SqlClient.SqlClient

/** What is erased: an org with all that it has, or one project of an org. */
export interface Erasure {
  readonly orgId: string
  /** `null`: the whole org. */
  readonly projectId: string | null
}

/** The rows that a step has read, and the last of them when more may follow. */
interface Erased {
  readonly rows: number
  readonly last: string | null
}

export type Step = (
  sql: Sql,
  erasure: Erasure,
  after: string,
  limit: number,
) => Effect.Effect<Erased, SqlError.SqlError>
export type NamedStep = readonly [name: string, step: Step]

export const erased = (ids: ReadonlyArray<string>, limit: number): Erased => ({
  rows: ids.length,
  last: ids.length === limit ? ids.at(-1)! : null,
})

/** The result of a DELETE that needs no `after`, because it finds the next rows itself. */
export const erasedRows = (deleted: Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>, limit: number) =>
  Effect.map(deleted, ({ length }): Erased => ({ rows: length, last: length === limit ? "" : null }))

/** Locks the next rows of a table in the order of their ids. Skips those that others have locked; the next pass takes them. */
const lockNext = (sql: Sql, table: string, { orgId }: Erasure, after: string, limit: number) =>
  Effect.map(
    sql<{ id: string }>`
      SELECT id FROM ${sql(table)} WHERE org_id = ${orgId} AND id > ${after}
      ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
    (rows) => rows.map(({ id }) => id),
  )

export const byId = (sql: Sql, table: string, { orgId }: Erasure, ids: ReadonlyArray<string>) =>
  sql`DELETE FROM ${sql(table)} WHERE org_id = ${orgId} AND id = ANY(${texts(ids)})`

/** Erases a table that has an index by org and id. */
export const table =
  (
    name: string,
    before?: (sql: Sql, erasure: Erasure, ids: ReadonlyArray<string>) => Effect.Effect<unknown, SqlError.SqlError>,
  ): Step =>
  (sql, erasure, after, limit) =>
    Effect.gen(function* () {
      const ids = yield* lockNext(sql, name, erasure, after, limit)
      if (ids.length === 0) return erased(ids, limit)
      if (before !== undefined) yield* before(sql, erasure, ids)
      yield* byId(sql, name, erasure, ids)
      return erased(ids, limit)
    })

/** Erases a table whose rows of an org have no order, by an index that begins with the org. */
export const unordered =
  (name: string): Step =>
  (sql, { orgId }, _, limit) =>
    erasedRows(
      sql`
        DELETE FROM ${sql(name)} WHERE org_id = ${orgId} AND ctid = ANY(ARRAY(
          SELECT ctid FROM ${sql(name)} WHERE org_id = ${orgId} LIMIT ${limit} FOR UPDATE SKIP LOCKED
        )) RETURNING 1`,
      limit,
    )

/**
 * Erases the counters of keys, which replacements share, and the answers of operations with an idempotency key, whose callers
 * keys are.
 */
export const eraseOfKeys = Effect.fnUntraced(function* (sql: Sql, { orgId }: Erasure, ids: ReadonlyArray<string>) {
  yield* sql`
    DELETE FROM key_counters WHERE org_id = ${orgId} AND id = ANY(ARRAY(
      SELECT coalesce(counter_id, id) FROM api_keys WHERE org_id = ${orgId} AND id = ANY(${texts(ids)})))`
  yield* sql`DELETE FROM idempotency_keys WHERE caller = ANY(${texts(ids)})`
})
