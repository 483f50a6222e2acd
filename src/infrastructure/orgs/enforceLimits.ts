import { Clock, Effect, Exit, Option, RcMap, Semaphore } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { LRUCache } from "lru-cache"
import { Unavailable } from "../../domain/Errors.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"
import { DefaultLimits, limitReached, type OrgLimitName } from "../../domain/orgs/OrgLimits.ts"
import { outsideTransaction } from "../database/boundedTransactions.ts"
import { texts } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin, WaitsForOthers } from "../database/orUnavailable.ts"
import { type Amounts, type Column, columns, type Hold, OrgUsage } from "./OrgUsage.ts"

type Sql = SqlClient.SqlClient

/** The rows that limits count: a table, and conditions of disjoint parts, each with an index by org and id. */
export const countedRows = {
  projects: { table: "projects", column: "projects", parts: ["true"] },
  keys: { table: "api_keys", column: "keys", parts: ["true"] },
  endpoints: { table: "webhook_endpoints", column: "endpoints", parts: ["true"] },
  schedules: { table: "job_schedules", column: "schedules", parts: ["true"] },
  unfinishedJobs: { table: "jobs", column: "unfinished_jobs", parts: ["status = 'queued'", "status = 'running'"] },
} as const
export type CountedRows = keyof typeof countedRows

/** Whose limit a creation counts for. */
export interface Owner {
  /** What the caller knows: the id of an org or of a project, or a word for the default org. */
  readonly key: string
  /** SQL after FROM that finds the owner's org as `org`; evaluated only when it is needed. */
  readonly from: () => Statement.Fragment
}

/** The org itself as the owner. */
export const orgOwner = (sql: Sql, orgId: string): Owner => ({
  key: orgId,
  from: () => sql`orgs org WHERE id = ${orgId}`,
})

/** What an org has, or may have, beside `org_usage`: a condition of `fits`. */
export interface Beside {
  readonly rows: number
  readonly bytes: number
}
/**
 * Of what is decided already: it fits whatever the limit. Nothing else is below zero, which tells it to a statement for
 * many orgs.
 */
const decided: Beside = { rows: -1e15, bytes: -1e15 }

/** What an org has left. */
interface Room {
  readonly rows: number
  readonly bytes: number
}

export type Rooms = ReadonlyMap<string, Room>

/** What a creation needs: some rows, a row by default, and their bytes. */
export interface Needs {
  readonly rows?: number
  readonly bytes?: number
}

/** SQL: the limit of the row `org`: its own, or the default. */
export const limitOf = (name: OrgLimitName, defaultValue: number) =>
  `coalesce((org.limits->>'${name}')::bigint, ${defaultValue})`

/** SQL: the bytes that the row `org` has stored, as far as they are written. */
export const usedBytes = `coalesce((SELECT stored_bytes + measured_bytes FROM org_usage WHERE org_id = org.id), 0)`

/** Rows that one statement counts for a decision; an org with more is counted in batches, every five seconds. */
const maxCounted = 20_000
const countAgainMillis = 5_000
/** How often, and after how long, a creation is tried again that waits for others. */
const waits = { times: 120, interval: "25 millis" } as const

const tooMany = new Unavailable({ error: "Too many requests wait for the same limit; try again." })

/** SQL: the number of rows that a limit counts for the row `org`, up to `upTo`. */
export const countUpTo = (name: CountedRows, upTo: number) => {
  const { table, parts } = countedRows[name]
  const rows = parts.map((part) => `SELECT 1 FROM ${table} WHERE org_id = org.id AND ${part}`).join(" UNION ALL ")
  return `(SELECT count(*) FROM (${rows} LIMIT ${upTo}) AS counted)`
}

/** Rows that one statement counts in batches. */
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
export const countRows = Effect.fnUntraced(function* (sql: Sql, name: CountedRows, orgId: string, upTo = Infinity) {
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

/**
 * Adds to what `org_usage` says of orgs. A count of rows that is not known stays so. Writes in the order of ids, to
 * avoid deadlocks.
 */
const write = (sql: Sql, unsorted: ReadonlyArray<Pick<Hold, "amounts" | "orgId">>) => {
  const all = unsorted.toSorted((a, b) => (a.orgId < b.orgId ? -1 : 1))
  const sums = columns.map((column) =>
    column.endsWith("bytes") ? `greatest(0, u.${column} + rows.${column})` : `u.${column} + rows.${column}`,
  )
  const values = columns.map((column) => sql`${texts(all.map(({ amounts }) => `${amounts[column] ?? 0}`))}`)
  return sql`
    WITH rows AS MATERIALIZED (
      SELECT org.id, ${sql.literal(columns.map((column) => `${column}::bigint AS ${column}`).join(", "))}
      FROM unnest(${texts(all.map(({ orgId }) => orgId))}, ${sql.csv(values)}) AS changed (id, ${sql.literal(columns.join(", "))})
      -- The lock: an erasure waits for it, and then finds the row.
      CROSS JOIN LATERAL (SELECT id FROM orgs WHERE id = changed.id FOR KEY SHARE) AS org
    )
    INSERT INTO org_usage AS u (org_id, stored_bytes, measured_bytes)
    SELECT id, greatest(0, stored_bytes), greatest(0, measured_bytes) FROM rows ORDER BY id
    ON CONFLICT (org_id) DO UPDATE SET (${sql.literal(columns.join(", "))}) =
      (SELECT ${sql.literal(sums.join(", "))} FROM rows WHERE rows.id = excluded.org_id)`
}

/**
 * Corrects what `org_usage` says of an org after a count. What others have added since the count began stays.
 *
 * @param before what it said before the count
 */
export const correct = (sql: Sql, column: Column, orgId: string, before: number, counted: number) => {
  const name = sql.literal(column)
  return sql`
    INSERT INTO org_usage AS u (org_id, ${name})
    SELECT id, ${`${counted}`}::bigint FROM (SELECT id FROM orgs WHERE id = ${orgId} FOR KEY SHARE) AS org
    ON CONFLICT (org_id) DO UPDATE SET
      ${name} = excluded.${name} + greatest(0, coalesce(u.${name}, 0) - ${`${before}`}::bigint)`
}

/**
 * Subtracts the bytes of removed rows, in the transaction that removes them. Call it once for a batch of rows, not for
 * each request.
 *
 * @param bytes by org: `bytesOf` the removed rows
 */
export const subtractStoredBytes = (sql: Sql, bytes: ReadonlyMap<string, number>) => {
  const all = [...bytes].map(([orgId, by]) => ({ orgId, amounts: { stored_bytes: -by } }))
  return all.length === 0 ? Effect.void : Effect.asVoid(write(sql, all))
}

/** Orgs that one statement writes. */
const writeBatchSize = 200

/** Writes what this replica has added. What cannot be written stays for the next call. */
export const writeUsage = Effect.fnUntraced(function* (sql: Sql, usage: OrgUsage["Service"]) {
  let written = writeBatchSize
  while (written === writeBatchSize) {
    const claimed = usage.claimAll(writeBatchSize)
    written = claimed.length
    if (written === 0) return
    // Until here it counts twice, so that no limit is exceeded because of the write.
    yield* Effect.onExit(bounded(write(sql, claimed)), (exit) =>
      Effect.sync(() => claimed.forEach((one) => usage.settle(one, Exit.isSuccess(exit) ? {} : one.amounts))),
    )
  }
})

interface Counted {
  readonly orgId: string
  readonly limit: number
  readonly counted: number
  /** Rows that this replica has created since the count began, which may miss them. */
  readonly meanwhile: number
  readonly byteLimit: number
  /** The bytes that the org has left by `org_usage`. */
  readonly left: number
}

/**
 * The limit of one kind of rows, and of the bytes of an org.
 *
 * A creation has the condition `fits`, and so needs no extra round trip: `org_usage` and what this replica has beside
 * it leave room. Every replica writes what it has added every five seconds. So a limit is exceeded at most by what
 * other replicas create in the same five seconds.
 *
 * Removed rows count until a creation does not fit. Then the rows are counted, which corrects `org_usage` and decides.
 * So are rows that this process has not counted before: what a killed replica had not written is missing in
 * `org_usage`.
 */
export const make = Effect.fnUntraced(function* (name: CountedRows) {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const defaults = yield* DefaultLimits
  const clock = yield* Clock.Clock
  const scope = yield* Effect.scope
  const turns = yield* RcMap.make({ lookup: (_orgId: string) => Semaphore.make(1) })
  const countedAt = new LRUCache<string, number>({ max: 10_000 })
  const { column } = countedRows[name]
  const [limit, byteLimit] = [limitOf(name, defaults[name]), limitOf("storedBytes", defaults.storedBytes)]
  const bytesColumn = name === "schedules" || name === "unfinishedJobs" ? "stored_bytes" : "measured_bytes"
  const amounts = ({ bytes = 0, rows = 1 }: Needs): Amounts => ({ [column]: rows, [bytesColumn]: bytes })
  const isInTransaction = Effect.map(Effect.serviceOption(sql.transactionService), Option.isSome)
  const numbers = sql.literal(`
    org.id AS "orgId", ${limit}::float8 AS "limit", ${byteLimit}::float8 AS "byteLimit",
    (SELECT ${column} FROM org_usage WHERE org_id = org.id)::float8 AS before,
    (${byteLimit} - ${usedBytes})::float8 AS left`)
  const upToMost = sql.literal(countUpTo(name, maxCounted + 1))

  const inTurn = <A, E, R>(orgId: string, one: Effect.Effect<A, E, R>) =>
    Effect.scoped(Effect.flatMap(RcMap.get(turns, orgId), (turn) => turn.withPermit(one)))

  /** The condition of an INSERT … SELECT … FROM orgs org; of several orgs, with their numbers as columns. */
  const fits = (beside: Beside | { readonly rows: Statement.Fragment; readonly bytes: Statement.Fragment }) => {
    const [rows, bytes] = [beside.rows, beside.bytes].map((n) => (typeof n === "number" ? sql`${`${n}`}` : n))
    // Not an EXISTS: PostgreSQL makes a join of it, and may read all orgs. What is not known fits if that is decided.
    return sql`coalesce((
      SELECT u.${sql.literal(column)} + ${rows!}::bigint <= ${sql.literal(limit)}
        AND u.stored_bytes + u.measured_bytes + ${bytes!}::bigint <= ${sql.literal(byteLimit)}
      FROM org_usage u WHERE u.org_id = org.id), ${rows!}::bigint < 0)`
  }

  /** Counts the rows of an org with many, at most every five seconds; else returns what is known. */
  const countMany = Effect.fnUntraced(function* (orgId: string, before: number | null, unwritten: number) {
    const now = monotonicMillisOf(clock)
    if (before !== null && now - (countedAt.get(orgId) ?? -Infinity) < countAgainMillis) {
      return { counted: before + unwritten, isExact: false }
    }
    const counted = yield* countRows(sql, name, orgId)
    countedAt.set(orgId, now)
    return { counted, isExact: true }
  })

  /** Counts the rows of an owner's org, and corrects `org_usage`; `undefined` when there is no such owner. */
  const count = Effect.fnUntraced(function* ({ from, key }: Owner, isApart: boolean) {
    const knownOrg = usage.orgOf(key)
    // What is unwritten now is counted. In a transaction it stays, because the correction may be undone.
    const claimed = usage.claim(knownOrg, isApart ? [column] : [])
    const madeBefore = usage.made(knownOrg, column)
    let isExact = true
    const counting = Effect.gen(function* () {
      const [found] = yield* sql<Omit<Counted, "meanwhile"> & { readonly before: number | null }>`
        SELECT ${numbers}, ${upToMost}::int AS counted FROM ${from()}`
      if (found === undefined) return undefined
      const { before, limit, orgId } = found
      usage.setOrgOf(key, orgId)
      let { counted } = found
      if (counted > maxCounted && limit <= maxCounted) isExact = false
      else if (counted > maxCounted) {
        const unwritten = claimed.amounts[column] ?? 0
        ;({ counted, isExact } = yield* countMany(orgId, before, unwritten))
      }
      const known = Effect.sync(() => usage.setCounted(column, orgId))
      const corrected =
        isExact && counted !== before ? Effect.andThen(correct(sql, column, orgId, before ?? 0, counted), known) : known
      // A transaction may be undone; and it would keep the row of `org_usage` locked for others, whose creations it may
      // wait for. Who waits for it has the connection that a correction needs, so nothing waits for that.
      yield* isApart ? corrected : Effect.forkIn(outsideTransaction(sql)(Effect.ignore(bounded(corrected))), scope)
      // Of an org that was not known before: all that is remembered, which is too much. The next count knows it.
      const meanwhile = usage.made(orgId, column) - (orgId === knownOrg ? madeBefore : 0)
      return { ...found, counted, meanwhile }
    })
    return yield* Effect.onExit(orUnavailable(counting), (exit) =>
      Effect.sync(() =>
        usage.settle(claimed, Exit.isSuccess(exit) && exit.value !== undefined && isExact ? {} : claimed.amounts),
      ),
    )
  })

  /** Admits what is held, or fails; `undefined` when there is no such owner. */
  const decide = Effect.fnUntraced(function* (
    owner: Owner,
    { bytes = 0, rows = 1 }: Needs,
    hold: (orgId: string) => Hold,
  ) {
    const isApart = !(yield* isInTransaction)
    for (let tries = 0; tries < waits.times; tries++) {
      const counting = count(owner, isApart)
      // One count of an org at a time. A transaction has a connection, so that it must not wait for others.
      const found = yield* isApart ? inTurn(usage.orgOf(owner.key), counting) : counting
      if (found === undefined) return undefined
      const { byteLimit, counted, left, limit, meanwhile, orgId } = found
      const held = hold(orgId)
      if (usage.bytesBefore(held) + bytes > left) return yield* limitReached("storedBytes", byteLimit)
      if (counted + rows > limit) return yield* limitReached(name, limit)
      const others = meanwhile + usage.heldBefore(held, column)
      if (counted + others + rows <= limit) return found
      // Others are being created; some of them may be counted already.
      yield* isApart ? Effect.sleep(waits.interval) : Effect.die(new WaitsForOthers({ answer: tooMany }))
    }
    return yield* tooMany
  })

  /**
   * Creates rows, or fails with `LimitReached`; returns `undefined` when there is no such owner.
   *
   * @param insert creates them if `fits` of what it gets is true, else returns `undefined`
   * @param keptOf how much of what it needs a result has
   */
  const admit = <Row, E, R>(
    owner: Owner,
    needs: Needs,
    insert: (beside: Beside) => Effect.Effect<Row | undefined, E, R>,
    keptOf: (made: Row) => Needs = () => needs,
  ) =>
    Effect.suspend(() => {
      let held: Hold | undefined
      const hold = (orgId: string) => (held ??= usage.hold(orgId, amounts(needs)))
      const orgId = usage.countedOrg(column, owner.key)
      const first = Effect.suspend(() => {
        if (orgId === undefined) return Effect.undefined
        hold(orgId)
        return insert({ rows: usage.beside(orgId, column), bytes: usage.bytes(orgId) })
      })
      const made = Effect.flatMap(first, (row) =>
        row === undefined
          ? Effect.flatMap(decide(owner, needs, hold), (found) =>
              found === undefined ? Effect.undefined : insert(decided),
            )
          : Effect.succeed(row),
      )
      return Effect.onExit(made, (exit) => {
        if (held === undefined) return Effect.void
        const isMade = Exit.isSuccess(exit) && exit.value !== undefined
        const settle = Effect.sync(() => usage.settle(held!, isMade ? amounts(keptOf(exit.value!)) : {}))
        // What is not committed yet is not counted by others.
        return isMade ? sql.afterCommit(settle) : settle
      })
    })

  /**
   * In a transaction: finds how many of the rows that are wanted each org has room for. They are held while they are
   * created.
   *
   * @param keptOf what of them a result has, by org
   */
  const withRooms = Effect.fnUntraced(function* <A, E, R>(
    wanted: ReadonlyMap<string, number>,
    create: (rooms: Rooms) => Effect.Effect<A, E, R>,
    keptOf: (made: A, orgId: string) => Needs,
  ) {
    // Held first: what begins later counts them, and what began before is known before the statement reads.
    const holds = [...wanted].map(([orgId, rows]) => usage.hold(orgId, { [column]: rows }))
    const before = new Map(
      holds.map((held) => {
        const { amounts, orgId } = held
        const rows = usage.beside(orgId, column) - amounts[column]!
        return [orgId, { held, rows, bytes: usage.bytes(orgId) }]
      }),
    )
    const creating = Effect.gen(function* () {
      const orgs = yield* sql<Pick<Counted, "orgId" | "limit" | "left"> & { readonly before: number | null }>`
        SELECT ${numbers} FROM orgs org WHERE id = ANY(${texts(wanted.keys())})`
      const rooms = new Map<string, Room>()
      for (const { before: written, left, limit, orgId } of orgs) {
        const most = wanted.get(orgId)!
        const { bytes, held, rows: others } = before.get(orgId)!
        const isCounted = usage.countedOrg(column, orgId) !== undefined && written !== null
        let rows = isCounted ? limit - written - others : 0
        if (rows < most) {
          const found = yield* count(orgOwner(sql, orgId), false)
          rows = found === undefined ? 0 : limit - found.counted - found.meanwhile - usage.heldBefore(held, column)
        }
        rooms.set(orgId, { rows: Math.max(0, Math.min(rows, most)), bytes: left - bytes })
      }
      return yield* create(rooms)
    })
    return yield* Effect.onExit(creating, (exit) => {
      const settle = Effect.sync(() => {
        for (const held of holds)
          usage.settle(held, Exit.isSuccess(exit) ? amounts(keptOf(exit.value, held.orgId)) : {})
      })
      return Exit.isSuccess(exit) ? sql.afterCommit(settle) : settle
    })
  })

  return {
    fits,
    admit,
    withRooms,

    /** Creates rows in a transaction; fails at the limit, and when the owner was deleted meanwhile. */
    within: <A, E, R>(owner: Owner, needs: Needs, create: Effect.Effect<A, E, R>) => {
      const created = Effect.map(create, (value) => ({ value }))
      const insert = (beside: Beside) =>
        beside === decided
          ? created
          : Effect.flatMap(
              sql`SELECT 1 FROM (SELECT org.id, org.limits FROM ${owner.from()}) AS org WHERE ${fits(beside)}`,
              (found) => (found.length > 0 ? created : Effect.undefined),
            )
      return Effect.flatMap(admit(owner, needs, insert), (made) =>
        made === undefined ? Effect.fail(orgDeleted) : Effect.succeed(made.value),
      )
    },
  }
})

/** The limit of one kind of rows. */
export type Limit = Effect.Success<ReturnType<typeof make>>
