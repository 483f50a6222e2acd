import { Effect, Exit } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { LimitReached, Unavailable } from "../../domain/Errors.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"
import { DefaultLimits, limitReached } from "../../domain/orgs/OrgLimits.ts"
import { graceBytes, rowCost } from "../../domain/orgs/StoredBytes.ts"
import { orgMoves, orUnavailable } from "../database/orUnavailable.ts"
import { limitOf, usedBytes } from "./enforceLimits.ts"
import { type Hold, OrgUsage } from "./OrgUsage.ts"

/** The texts of a row that count. Those of a measured table decide whether a change makes the row larger. */
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
  project: [
    "name",
    "subdomain",
    "default_branch",
    "key_prefix",
    "host_owner",
    "host_repo",
    "pin_workflow",
    "pin_environment",
  ],
  key: ["name", "permissions::text", "roles::text", "external_id", "metadata::text", "allowed_ips::text"],
  role: ["permissions::text"],
  docs: ["docs_zip_url", "docs_url"],
  workflow: ["retry::text"],
  endpoint: [
    "url",
    "description",
    "array_to_string(event_types, '')",
    "headers",
    "auth",
    "external_id",
    "metadata::text",
    "array_to_string(channels, '')",
    "filter::text",
    "secret",
  ],
  eventType: ["description", "group_name", "schemas", "example"],
  alert: ["alert::json->>'name'", "secret"],
} as const

/** The tables with rows that a request changes. All but schedules are measured. */
const changedTables = {
  project: "projects",
  key: "api_keys",
  role: "roles",
  docs: "project_docs",
  workflow: "workflows",
  schedule: "job_schedules",
  endpoint: "webhook_endpoints",
  eventType: "event_types",
  alert: "alerts",
} as const satisfies Partial<Record<keyof typeof sizedTexts, string>>

/**
 * SQL: the bytes of a row, which count while it exists.
 *
 * @param kind of a row; the statement has its columns
 * @param more its other columns that count
 */
export const bytesOf = (kind: keyof typeof sizedTexts, ...more: ReadonlyArray<string>) => {
  const texts = [...sizedTexts[kind], ...more].map((name) => `coalesce(octet_length(${name}), 0)`)
  return `(${[kind in rowCost ? rowCost[kind as keyof typeof rowCost] : rowCost.other, ...texts].join(" + ")})`
}

/**
 * Whether a row may have this many bytes more when the org has `left` by the database's count, and this many are
 * stored with them.
 */
export type MayGrow = (bytes: number, left: number, stored?: number) => boolean

/** The limit of stored bytes, of what is no row of another limit. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const limit = limitOf("storedBytes", (yield* DefaultLimits).storedBytes)
  const left = `${limit} - ${usedBytes}`
  const atMostLeft = sql.literal(`<= ${left}`)

  return {
    /** The condition of a statement that reads `orgs org` and stores bytes. `storing` must have counted them. */
    fits: (orgId: string) => sql`${`${usage.bytes(orgId)}`}::bigint ${atMostLeft}`,

    /** SQL: the rest of a comparison of bytes with those that the row `org` has left. */
    atMostLeft,

    /** SQL: the bytes that the row `org` has left by the database's count; below zero past its limit. */
    left: sql.literal(left),

    /**
     * Runs what makes rows larger, and counts that itself. It asks `mayGrow` for each row, with what the org has left,
     * which it reads itself: what may grow is held until the end.
     */
    growing: <A, E, R>(orgId: string, grow: (mayGrow: MayGrow) => Effect.Effect<A, E, R>) =>
      Effect.suspend(() => {
        const before = usage.bytes(orgId)
        const holds: Array<Hold> = []
        let held = 0
        const mayGrow: MayGrow = (bytes, left, stored = bytes) => {
          const hold = usage.hold(orgId, { stored_bytes: Math.max(0, stored) })
          // What was unwritten before may be written since `left` was read.
          const beside = Math.max(before + held, usage.bytesBefore(hold))
          const may = bytes <= graceBytes || beside + stored <= left
          if (may) held += Math.max(0, stored)
          else usage.settle(hold, {})
          holds.push(hold)
          return may
        }
        const end = Effect.sync(() => holds.forEach((hold) => usage.settle(hold, {})))
        return Effect.onExit(grow(mayGrow), (exit) => (Exit.isSuccess(exit) ? sql.afterCommit(end) : end))
      }),

    /**
     * Counts the bytes that a statement stores while it runs.
     *
     * @param keptOf how many of them its result has stored
     */
    storing: <A, E, R>(
      orgId: string,
      bytes: number,
      keptOf: (made: A) => number,
      store: Effect.Effect<A, E, R>,
      column: "stored_bytes" | "measured_bytes" = "stored_bytes",
    ) =>
      Effect.suspend(() => {
        const hold = usage.hold(orgId, { [column]: bytes })
        return Effect.onExit(store, (exit) =>
          Effect.sync(() => usage.settle(hold, { [column]: Exit.isSuccess(exit) ? keptOf(exit.value) : 0 })),
        )
      }),

    /**
     * Creates or changes a row in a transaction, and counts the bytes that it has more or less. Fails when it has more
     * and its org has no room for them. A row without an org has no limit.
     *
     * @param where the condition of the row, which is locked first. What may create it has a lock of its own before.
     * @param change what takes no other lock before that of the row
     */
    changing: <A, E, R>(
      kind: keyof typeof changedTables,
      where: Statement.Fragment,
      change: Effect.Effect<A, E, R>,
    ) => {
      const table = changedTables[kind]
      const ofOrg = (number: string) => `(SELECT (${number})::float8 FROM orgs org WHERE org.id = ${table}.org_id)`
      const numbers = sql.literal(`${bytesOf(kind)} AS bytes, ${ofOrg(left)} AS left, ${ofOrg(limit)} AS "limit"`)
      const read = (lock = "") => sql<{ orgId: string; bytes: number; left: number | null; limit: number }>`
        SELECT org_id AS "orgId", ${numbers} FROM ${sql.literal(table)} WHERE ${where} ${sql.literal(lock)}`
      return Effect.gen(function* () {
        const [before] = yield* read("FOR NO KEY UPDATE")
        const made = yield* change
        const [after] = yield* read()
        if (after === undefined || after.left === null) return made
        const more = after.bytes - (before?.bytes ?? 0)
        const column = kind === "schedule" ? "stored_bytes" : "measured_bytes"
        const hold = usage.hold(after.orgId, { [column]: Math.max(0, more) })
        if (more > 0 && usage.bytesBefore(hold) + more > after.left) {
          usage.settle(hold, {})
          return yield* limitReached("storedBytes", after.limit)
        }
        yield* sql.afterCommit(Effect.sync(() => usage.settle(hold, { [column]: more })))
        return made
      }).pipe(sql.withTransaction)
    },

    /** Fails for a statement that has stored nothing: `LimitReached`, the org was deleted, or has moved to a node. */
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
export type ByteLimit = Effect.Success<typeof make>
