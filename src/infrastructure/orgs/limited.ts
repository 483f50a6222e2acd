import { Effect, Option, PartitionedSemaphore } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { DefaultLimits, limitReached } from "../../domain/orgs/OrgLimits.ts"
import { lockFreeMargin, mostRows, OrgUsage } from "./OrgUsage.ts"
import { deadlines, orUnavailable } from "../database/orUnavailable.ts"
import { type CountedRows, countUpTo, limitOf } from "./orgCounts.ts"
import { usedBytes } from "./storedBytes.ts"

/** Whose limit a creation counts for. */
export interface Owner {
  /** What the caller knows: the id of an org or of a project, or a word for the default org. */
  readonly key: string
  /** SQL after FROM that finds the owner's org as `org`; evaluated only when it is needed. */
  readonly from: () => Statement.Fragment
}

/** The org itself as the owner. */
export const orgOwner = (sql: SqlClient.SqlClient, orgId: string): Owner => ({
  key: orgId,
  from: () => sql`orgs org WHERE id = ${orgId}`,
})

/** Rows that a creation counts in its own statement: some ten microseconds. */
const maxGuardCount = 80
/** The largest limit whose rows each creation counts; the rows of a larger limit are counted in the background. */
const maxExactLimit = 20_000
/** Creations of an org that use a connection to wait for the lock of a limit; the others wait without a connection. */
const maxLockingPerOrg = 3

/** Passed to an insert that needs no condition: below every limit. */
const isDecided = -1

interface CountedOrg {
  readonly orgId: string
  readonly limit: number
  /** `null` when the background counts the rows. */
  readonly count: number | null
  /** The limit of stored bytes, when the org has reached it. */
  readonly fullAt: number | null
}

/** What these rows store is measured some time later: their creation asks only whether there are bytes left. */
const measured: ReadonlySet<CountedRows> = new Set(["projects", "keys", "endpoints"])

/**
 * The limit of one kind of rows.
 *
 * The INSERT has the condition `guard`, so a creation needs no extra round trip. The condition counts up to 80 rows by
 * an index, or none when a count of the last minute is far below the limit (`mostRows`). Near the limit the INSERT adds
 * nothing, and `admit` decides under a lock of the org and the limit.
 *
 * A limit of up to 20,000 is exact while an org has at most 256 creations in flight over all replicas. Each further
 * creation in flight may exceed it by one. A replica whose count is far below the limit does not see what others create
 * until it counts again: it lets a quarter of the room through that the count leaves.
 *
 * Larger limits are counted in the background every few seconds. Rows that other replicas insert between two counts may
 * exceed them, and deleted rows count until the next count.
 */
export const make = Effect.fnUntraced(function* (name: CountedRows) {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const turns = yield* PartitionedSemaphore.make<string>({ permits: maxLockingPerOrg })
  const defaults = yield* DefaultLimits
  const limit = limitOf(name, defaults[name])
  const limitSql = sql.literal(limit)
  // With as many rows in three other creations in flight.
  const isFarBelow = (more: number) => {
    const guarded = `least(${limit} - ${lockFreeMargin + 4 * more}, ${maxGuardCount})`
    return `${countUpTo(name, `greatest(${guarded}, 0)`)} < ${guarded}`
  }
  const byteLimit = limitOf("storedBytes", defaults.storedBytes)
  const isFull = measured.has(name) ? `${usedBytes} >= ${byteLimit}` : "false"
  const hasBytes = sql.literal(`NOT (${isFull})`)
  const columns = sql.literal(`
    org.id AS "orgId", ${limit}::float8 AS "limit",
    CASE WHEN ${limit} <= ${maxExactLimit} THEN ${countUpTo(name, limit)}::int END AS count,
    (CASE WHEN ${isFull} THEN ${byteLimit} END)::float8 AS "fullAt"`)

  /** Counts the rows of an owner's org; no row when there is no such owner. */
  const find = ({ key, from }: Owner) =>
    Effect.suspend(() => {
      const store = usage.counting(name, key)
      return Effect.map(sql<CountedOrg>`SELECT ${columns} FROM ${from()}`, ([org]) => {
        if (org === undefined) return undefined
        usage.owns(key, org.orgId)
        // A count that reaches the limit stops there.
        if (org.count !== null && org.count < org.limit) store(org.count)
        return org
      })
    })

  /** Fails when the org has no room for `rows` more; adds them to the count in memory, which lets others through. */
  const takeRows = ({ count, fullAt, limit, orgId }: CountedOrg, rows: number) =>
    Effect.suspend(() => {
      if (fullAt !== null) return limitReached("storedBytes", fullAt)
      const isBelow = count === null ? usage.addWatched(name, orgId, limit, rows) : count + rows <= limit
      if (!isBelow) return limitReached(name, limit)
      if (count !== null) usage.atMost(name, orgId, count, rows)
      return Effect.void
    })

  /** In a transaction: locks the limit of the org until the transaction ends, and fails when it is reached. */
  const takeLocked = Effect.fnUntraced(function* (owner: Owner, orgId: string, rows: number) {
    yield* sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:limit:${name}:${orgId}`}, 0))`
    // A separate statement, so that it sees what the previous holder of the lock has committed.
    const org = yield* find(owner)
    if (org !== undefined) yield* takeRows(org, rows)
  })

  /** In a transaction that creates rows: fails at the limit. Does nothing when there is no such owner. */
  const take = Effect.fnUntraced(function* (owner: Owner, rows = 1) {
    const org = yield* find(owner)
    if (org === undefined) return
    yield* org.count === null ? takeRows(org, rows) : takeLocked(owner, org.orgId, rows)
  })

  /**
   * Inserts rows that the guard did not let through, if the limit allows it. Each statement is an operation of its
   * own, so that it holds no connection while it waits for others.
   */
  const decide = Effect.fnUntraced(function* <Row, E, R>(
    owner: Owner,
    insert: Effect.Effect<Row | undefined, E, R>,
    rows: number,
  ) {
    const org = yield* orUnavailable(find(owner))
    if (org === undefined) return undefined
    yield* takeRows(org, rows)
    const { count, limit, orgId } = org
    if (count === null || limit - count > lockFreeMargin + 4 * (rows - 1)) return yield* insert
    const locked = orUnavailable(sql.withTransaction(Effect.andThen(takeLocked(owner, orgId, rows), insert)))
    // A transaction has its connection already: it must not wait for creations that wait for a connection.
    const isInTransaction = Option.isSome(yield* Effect.serviceOption(sql.transactionService))
    if (isInTransaction) return yield* locked
    return yield* Effect.timeoutOrElse(turns.withPermit(orgId)(locked), {
      duration: deadlines.request,
      orElse: () => Effect.fail(new Unavailable({ error: "Too many requests wait for the same limit; try again." })),
    })
  })

  return {
    /**
     * The condition of an INSERT … SELECT … FROM orgs org.
     *
     * @param rowsAtMost the most rows that the org has, as `admit` passes it to the insert; SQL NULL when not known
     * @param more how many rows it inserts beside the first
     */
    guard: (rowsAtMost: Statement.Fragment, more = 0) =>
      sql`(${rowsAtMost}::bigint < ${limitSql} - ${sql.literal(`${more}`)} OR ${sql.literal(isFarBelow(more))}) AND ${hasBytes}`,

    /**
     * Inserts rows, or fails with `LimitReached`; returns `undefined` when there is no such owner.
     *
     * @param isGuarded whether a result means that the guard has let the rows through, and the owner's key is the org's
     * id: then the org has few rows, and the next creations count none. The count reads dead entries (ADR 37).
     */
    admit: <Row, E, R>(
      owner: Owner,
      insert: (rowsAtMost: number | null) => Effect.Effect<Row | undefined, E, R>,
      { isGuarded = false, rows = 1 }: { readonly isGuarded?: boolean; readonly rows?: number } = {},
    ) =>
      Effect.suspend(() => {
        const known = usage.known(name, owner.key)
        const rowsAtMost = known === undefined ? null : mostRows(known)
        // Before the rows are inserted, so that others count them while they are in flight.
        if (known !== undefined) known.added += rows
        return Effect.flatMap(insert(rowsAtMost), (made) => {
          if (made !== undefined) {
            if (known === undefined && isGuarded) usage.atMost(name, owner.key, maxGuardCount, rows)
            return Effect.succeed(made)
          }
          if (known !== undefined) known.added -= rows
          return decide(owner, insert(isDecided), rows)
        })
      }),

    take,

    /** How many of the rows that are wanted the org has room for. They count as added from now on. */
    room: (owner: Owner, wanted: number) =>
      Effect.map(find(owner), (org) => {
        if (org === undefined) return 0
        let room = org.count === null ? 0 : Math.max(0, Math.min(wanted, org.limit - org.count))
        if (org.count !== null) {
          usage.atMost(name, org.orgId, org.count, room)
          return room
        }
        while (room < wanted && usage.addWatched(name, org.orgId, org.limit)) room++
        return room
      }),
  }
})

/** The limit of one kind of rows. */
export type Limited = Effect.Success<ReturnType<typeof make>>
