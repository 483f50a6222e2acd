import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { DefaultLimits, limitReached } from "../../domain/orgs/OrgLimits.ts"
import { graceBytes, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orgMoves, orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { texts } from "../database/fragments.ts"
import { limitOf } from "./orgCounts.ts"
import type { LimitReached, Unavailable } from "../../domain/Errors.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"

/** The texts of a row that count. */
const sizedTexts = {
  job: [
    "input",
    "callback_url",
    "idempotency_key",
    "unique_key",
    "concurrency_key",
    "error",
    "mapped_stack",
    "attempt_log::text",
    "lines",
    "steps",
  ],
  schedule: ["input", "callback_url", "concurrency_key"],
  event: ["body", "idempotency_key", "array_to_string(channels, '')"],
  delivery: ["attempt_error", "attempt_body"],
  attempt: ["error", "body"],
} as const

/**
 * SQL: the bytes of a row, which count while it exists.
 *
 * @param kind of a row; the statement has its columns
 * @param more its other columns that count
 */
export const bytesOf = (kind: keyof typeof rowCost, ...more: ReadonlyArray<string>) =>
  `(${[rowCost[kind], ...[...sizedTexts[kind], ...more].map((name) => `coalesce(octet_length(${name}), 0)`)].join(" + ")})`

/** Orgs whose bytes one statement writes. */
const writeBatchSize = 1_000

/** What happens to the bytes in a row that exists: a sum below zero becomes zero. */
const writes = {
  stored_bytes: "greatest(0, org_usage.stored_bytes + excluded.stored_bytes)",
  measured_bytes: "excluded.measured_bytes",
} as const

/** Adds to the stored bytes of orgs, or sets the measured ones. Writes in the order of ids, to avoid deadlocks. */
export const writeUsage = (
  sql: SqlClient.SqlClient,
  column: keyof typeof writes,
  unsorted: ReadonlyArray<readonly [orgId: string, bytes: number]>,
) => {
  const all = unsorted.toSorted(([a], [b]) => (a < b ? -1 : 1))
  const [orgs, by] = [texts(all.map(([orgId]) => orgId)), texts(all.map(([, by]) => `${by}`))]
  return sql`
    WITH rows AS MATERIALIZED (
      SELECT org.id, by::bigint AS by FROM unnest(${orgs}, ${by}) AS changed (id, by)
      -- The lock: an erasure waits for it, and then finds the row.
      CROSS JOIN LATERAL (SELECT id FROM orgs WHERE id = changed.id FOR KEY SHARE) AS org
      WHERE by::bigint > 0 OR EXISTS (SELECT FROM org_usage WHERE org_id = org.id)
    )
    INSERT INTO org_usage (org_id, ${sql.literal(column)}) SELECT id, by FROM rows ORDER BY id
    ON CONFLICT (org_id) DO UPDATE SET ${sql.literal(`${column} = ${writes[column]}`)}`
}

/**
 * Subtracts the bytes of removed rows, in the transaction that removes them. Call it once for a batch of rows, not for
 * each request.
 *
 * @param bytes by org: `bytesOf` the removed rows
 */
export const subtractStoredBytes = (sql: SqlClient.SqlClient, bytes: ReadonlyMap<string, number>) =>
  bytes.size === 0
    ? Effect.void
    : Effect.asVoid(
        writeUsage(
          sql,
          "stored_bytes",
          [...bytes].map(([orgId, by]) => [orgId, -by] as const),
        ),
      )

/**
 * Writes the stored bytes that this replica has counted. Bytes that cannot be written stay for the next call, which
 * begins with others.
 */
export const writeStoredBytes = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, usage: OrgUsage["Service"]) {
  let written = writeBatchSize
  while (written === writeBatchSize) {
    const batch = usage.unwritten(writeBatchSize)
    written = batch.length
    if (written === 0) return
    const exit = yield* Effect.exit(orUnavailableWithin("sweep")(writeUsage(sql, "stored_bytes", batch)))
    for (const [orgId, bytes] of batch) {
      // Until here the bytes count twice, so the limit is never exceeded because of the write.
      usage.addBytes(orgId, -bytes)
      if (Exit.isFailure(exit)) usage.addBytes(orgId, bytes)
    }
    yield* exit
  }
})

/** SQL: the bytes that the row `org` has stored, as far as they are written. */
export const usedBytes = `coalesce((SELECT stored_bytes + measured_bytes FROM org_usage WHERE org_id = org.id), 0)`

/**
 * The limit of stored bytes. The bytes of this replica count at once. The bytes of other replicas count when they have
 * written them, a few seconds later, so together they may exceed the limit by that much. A killed replica loses the
 * count of its last seconds.
 */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = limitOf("storedBytes", (yield* DefaultLimits).storedBytes)
  const left = `${limit} - ${usedBytes}`
  const atMostLeft = sql.literal(`<= ${left}`)

  return {
    /** The condition of an INSERT … SELECT … FROM orgs org that stores bytes. `storing` must have counted the bytes. */
    fits: (orgId: string) => sql`${`${usage.unwrittenBytes(orgId)}`}::bigint ${atMostLeft}`,

    /** SQL: the rest of a comparison of unwritten bytes with the bytes that the row `org` has left. */
    atMostLeft,

    /** SQL: the bytes that the row `org` has left by the database's count; below zero past its limit. */
    left: sql.literal(left),

    /** Whether a row with this many bytes may be added to what exists, when `left` was read before. */
    mayGrow: (orgId: string, bytes: number, left: number) =>
      bytes <= graceBytes || usage.unwrittenBytes(orgId) + bytes <= left,

    /**
     * Counts the bytes that an insert stores while it runs.
     *
     * @param isStored whether its result says that it has stored them, or how many of them it has stored
     */
    storing: <A, E, R>(
      orgId: string,
      bytes: number,
      isStored: (made: A) => boolean | number,
      insert: Effect.Effect<A, E, R>,
    ) =>
      Effect.suspend(() => {
        usage.addBytes(orgId, bytes)
        return Effect.onExit(insert, (exit) =>
          Effect.sync(() => {
            const stored = Exit.isSuccess(exit) && isStored(exit.value)
            usage.addBytes(orgId, (stored === true ? bytes : Number(stored)) - bytes)
          }),
        )
      }),

    /**
     * Fails for an insert that the limit of rows did not refuse: `LimitReached`, the org was deleted, or has moved to a
     * node.
     */
    refuse: (orgId: string): Effect.Effect<never, LimitReached | Unavailable> =>
      sql<{ limit: number; node: string | null }>`
        SELECT ${sql.literal(limit)}::float8 AS "limit", node FROM orgs org WHERE id = ${orgId}`.pipe(
        orUnavailable,
        Effect.flatMap(([org]): Effect.Effect<never, LimitReached | Unavailable> => {
          if (org === undefined) return Effect.fail(orgDeleted)
          return org.node === null ? limitReached("storedBytes", org.limit) : Effect.fail(orgMoves)
        }),
      ),
  }
})

/** The limit of stored bytes. */
export type StoredBytes = Effect.Success<typeof make>
