import { Effect, Option, PartitionedSemaphore } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Unavailable } from "../../domain/Errors.ts"
import { DefaultLimits, limitReached } from "../../domain/orgs/OrgLimits.ts"
import { margin, OrgUsage } from "./OrgUsage.ts"
import { deadlines } from "../database/deadlines.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { type CountedRows, countUpTo, limitOf } from "./orgCounts.ts"

/** Whose room a creation takes. */
export interface Owner {
  /** What the caller names: an org's id, a project's, or a word for the default org. */
  readonly key: string
  /** What comes after FROM to find the owner's org as `org`; made only where it is needed. */
  readonly from: () => Statement.Fragment
}

/** The org itself as the owner. */
export const orgOwner = (sql: SqlClient.SqlClient, orgId: string): Owner => ({
  key: orgId,
  from: () => sql`orgs org WHERE id = ${orgId}`,
})

/** How many rows a creation counts at most in its own statement: some ten microseconds. */
const cheapCount = 80
/** Up to which limit rows are counted by the creations; larger ones are counted in the background. */
const exactUpTo = 20_000
/** How many creations wait for the lock of their org at one time: each holds a connection. Orgs take turns. */
const maxLocking = 3

interface Room {
  readonly orgId: string
  readonly limit: number
  /** `null`: counted in the background. */
  readonly count: number | null
}

/**
 * Holds a limit against the creations of one kind of rows.
 *
 * The statement that inserts has the condition `guard`, which counts up to 80 rows by an index, or none when the
 * org certainly has room (`OrgUsage.take`): no round trip more. Near the limit it inserts nothing, and `admit` decides
 * under a lock of the org and the limit. So a limit of up to 20,000 is exact however many create at once, as long as no
 * more than 256 creations of one org are in flight at one time over all replicas; past that, by as many as there are
 * more. Larger limits are counted every few seconds in the background: what other replicas add between two counts can
 * exceed them, and what an org does not have any more counts until the next.
 */
export const make = Effect.fnUntraced(function* (name: CountedRows) {
  const sql = yield* SqlClient.SqlClient
  const usage = yield* OrgUsage
  const defaults = yield* DefaultLimits
  const turns = yield* PartitionedSemaphore.make<string>({ permits: maxLocking })
  const limit = limitOf(name, defaults[name])
  const cheap = `least(${limit} - ${margin}, ${cheapCount})`
  const isCheap = sql.literal(`${countUpTo(name, `greatest(${cheap}, 0)`)} < ${cheap}`)
  const room = sql.literal(`
    org.id AS "orgId", ${limit}::float8 AS "limit",
    CASE WHEN ${limit} <= ${exactUpTo} THEN ${countUpTo(name, limit)}::int END AS count`)

  const look = ({ key, from }: Owner) =>
    sql<Room>`SELECT ${room} FROM ${from()}`.pipe(
      Effect.tap(([room]) => Effect.sync(() => room && usage.owns(key, room.orgId))),
    )

  /** Refuses when there is no room, as far as the background has counted. */
  const watched = ({ orgId, limit }: Room) =>
    Effect.suspend(() => (usage.addWatched(name, orgId, limit) ? Effect.void : limitReached(name, limit)))

  /** In a transaction: refuses when there is no room, and keeps others from taking it until the transaction ends. */
  const takeLocked = Effect.fnUntraced(function* (owner: Owner, { orgId }: Room) {
    yield* sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:limit:${name}:${orgId}`}, 0))`
    // A statement of its own: it sees what the holder before has committed.
    const [room] = yield* look(owner)
    if (room !== undefined && room.count !== null && room.count >= room.limit) {
      return yield* limitReached(name, room.limit)
    }
  })

  /** In a transaction that creates: refuses when there is no room. An owner that there is not is the caller's affair. */
  const take = Effect.fnUntraced(function* (owner: Owner) {
    const [room] = yield* look(owner)
    if (room !== undefined) yield* room.count === null ? watched(room) : takeLocked(owner, room)
  })

  /**
   * Decides when the guard has let nothing through. Each statement is an operation by itself: one that waits for others
   * must not hold a connection meanwhile.
   */
  const decide = Effect.fnUntraced(function* <Row, E, R>(owner: Owner, insert: Effect.Effect<Row | undefined, E, R>) {
    const [room] = yield* orUnavailable(look(owner))
    if (room === undefined) return undefined
    const { orgId, limit, count } = room
    if (count === null) return yield* Effect.andThen(watched(room), insert)
    if (count >= limit) return yield* limitReached(name, limit)
    if (limit - count > margin) {
      usage.counted(name, orgId, limit, count)
      return yield* insert
    }
    const locked = orUnavailable(sql.withTransaction(Effect.andThen(takeLocked(owner, room), insert)))
    // In a transaction it has its connection already: it must not wait for those who wait for one.
    const inTransaction = Option.isSome(yield* Effect.serviceOption(sql.transactionService))
    if (inTransaction) return yield* locked
    return yield* Effect.timeoutOrElse(turns.withPermit(orgId)(locked), {
      duration: deadlines.request,
      orElse: () => Effect.fail(new Unavailable({ error: "Too many creations near a limit wait; try again." })),
    })
  })

  return {
    /**
     * The condition of an INSERT … SELECT … FROM orgs org.
     *
     * @param room whether the org certainly has room
     */
    guard: (room: Statement.Fragment) => sql`(${room} OR ${isCheap})`,

    /** Inserts a row, or fails with `LimitReached`; `undefined` when there is no such owner. */
    admit: <Row, E, R>(owner: Owner, insert: (room: boolean) => Effect.Effect<Row | undefined, E, R>) =>
      Effect.flatMap(
        Effect.suspend(() => insert(usage.take(name, owner.key))),
        (made) => (made === undefined ? decide(owner, insert(true)) : Effect.succeed(made)),
      ),

    take,
  }
})

/** A limit of one kind of rows. */
export type Limited = Effect.Success<ReturnType<typeof make>>
