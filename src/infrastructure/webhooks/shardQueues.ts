import { Clock, DateTime, Duration, Effect, Exit, Schedule } from "effect"
import type { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import type { Claim, Claimed, DeliveryQueue } from "../../domain/webhooks/DeliveryQueue.ts"
import { shardOf, type Shards, shardsOf, eachShard, inShard } from "../database/shards.ts"
import { date } from "../database/fragments.ts"
import { parkedLane } from "./lanes.ts"

type Queue = DeliveryQueue["Service"]

/**
 * How long a shard may stay unread: another replica may have left deliveries in it. Less than the poll interval of the
 * worker.
 */
const pollMillis = Duration.toMillis("4 seconds")
/** How long a shard is left alone after a claim in it failed. */
const unavailableMillis = Duration.toMillis("1 second")
/** Shards that an operation uses at the same time. */
const maxConcurrentShards = 4

/** The first of some times; `null` when there is none. */
export const earliest = (times: ReadonlyArray<DateTime.Utc | null>) =>
  times.reduce((a, b) => (a === null || (b !== null && DateTime.isLessThan(b, a)) ? b : a), null)

/** When a shard is read next: its deliveries by the wall clock, and the rest by the monotonic one, in milliseconds. */
interface Place {
  dueAt: number
  pollAt: number
  unavailableUntil: number
  /** Whether its last claim left due deliveries, which may have room as soon as any slot is free. */
  isShort: boolean
}

/** Whether a claim in the shard of the fiber may find something. */
type HasDue = (now: DateTime.Utc) => Effect.Effect<boolean, Unavailable>

const nothing: Claimed = { deliveries: [], more: false, short: false, pacedUntil: null }

/**
 * Claims in one shard after the other, in turn. Reads those that this process has changed, and those with due
 * deliveries.
 */
const makeClaim = (
  sql: SqlClient.SqlClient,
  { all, count, dirty }: Shards,
  queues: ReadonlyArray<Queue>,
  hasDue: HasDue,
) => {
  const hot = dirty.follow()
  const places = all.map((): Place => ({ dueAt: 0, pollAt: -Infinity, unavailableUntil: -Infinity, isShort: false }))
  let first = 0

  /** The shards to read, in turn: all of them when the worker knows of work that this process does not. */
  const candidates = (claim: Claim, now: number) => {
    const claimedAt = DateTime.toEpochMillis(claim.now)
    const inTurn = all.map((n) => (first + n) % count).filter((shard) => places[shard]!.unavailableUntil <= now)
    const open = inTurn.filter((shard) => {
      const { dueAt, isShort, pollAt } = places[shard]!
      return hot.has(shard) || isShort || dueAt <= claimedAt || pollAt <= now
    })
    return open.length > 0 ? open : inTurn
  }

  /** Claims in one shard; `undefined` when it is unavailable. */
  const claimIn = Effect.fnUntraced(function* (shard: number, claim: Claim, now: number) {
    const place = places[shard]!
    const queue = queues[shard]!
    const { dueAt } = place
    // A poll for what other replicas left says nothing about the due times that this process knows.
    const isPoll = !hot.has(shard) && dueAt > DateTime.toEpochMillis(claim.now)
    // Before the claim, so that a change during it is not lost.
    hot.delete(shard)
    const found = isPoll && !place.isShort ? hasDue(claim.now) : Effect.succeed(true)
    const claiming = Effect.flatMap(found, (has) => (has ? queue.claim(claim) : Effect.succeed(nothing)))
    const exit = yield* Effect.exit(inShard(sql, shard)(claiming))
    if (Exit.isFailure(exit)) {
      place.unavailableUntil = now + unavailableMillis
      hot.add(shard)
      return Exit.hasFails(exit) ? undefined : yield* exit
    }
    const { deliveries, more, pacedUntil, short } = exit.value
    place.pollAt = now + pollMillis
    place.isShort = short
    place.dueAt = pacedUntil === null ? Infinity : DateTime.toEpochMillis(pacedUntil)
    if (deliveries.length > 0 || more) hot.add(shard)
    else if (isPoll) place.dueAt = Math.min(place.dueAt, dueAt)
    else {
      const next = yield* Effect.catch(inShard(sql, shard)(queue.nextDueAt), () => Effect.succeed(null))
      if (next !== null) place.dueAt = Math.min(place.dueAt, DateTime.toEpochMillis(next))
    }
    return exit.value
  })

  const claim = Effect.fnUntraced(function* (claim: Claim) {
    const now = Number(yield* Clock.monotonicTimeNanos) / 1e6
    let found = nothing
    const open = candidates(claim, now)
    for (const [n, shard] of open.entries()) {
      const claimed = yield* claimIn(shard, claim, now)
      if (claimed === undefined) continue
      found = {
        deliveries: claimed.deliveries,
        more: found.more || claimed.more,
        short: found.short || claimed.short,
        pacedUntil: earliest([found.pacedUntil, claimed.pacedUntil]),
      }
      if (claimed.deliveries.length === 0) continue
      first = (shard + 1) % count
      return { ...found, more: found.more || n + 1 < open.length }
    }
    return found
  })

  /** The next due time of all shards: of those that changed since their last claim, by the database. */
  const nextDueAt = Effect.gen(function* () {
    const read = yield* eachShard(sql, queues[0]!.nextDueAt, [...hot])
    const known = places.flatMap(({ dueAt }, shard) =>
      hot.has(shard) || dueAt === Infinity ? [] : [DateTime.makeUnsafe(dueAt)],
    )
    return earliest([...read, ...known])
  })
  /** A retry in a lane that sends in order is not among the due times of the database. */
  const retryAt = (shard: number, time: DateTime.Utc | null) => {
    if (time !== null) places[shard]!.dueAt = Math.min(places[shard]!.dueAt, DateTime.toEpochMillis(time))
  }
  return { claim, nextDueAt, retryAt }
}

/** How often a record in an unavailable shard is tried again: until the lease of its deliveries ends. */
const recordAgain = Schedule.max([Schedule.spaced("1 second"), Schedule.recurs(50)])

/**
 * Runs an operation of the queue on the deliveries of each shard. A shard that is unavailable must not hold up the
 * others: its part is tried again in the background. Until then its deliveries keep their lease, and are due again if
 * that ends.
 */
const inParts = <Item>(
  sql: SqlClient.SqlClient,
  { count, dirty }: Shards,
  queues: ReadonlyArray<Queue>,
  items: ReadonlyArray<Item>,
  orgOf: (item: Item) => string,
  run: (queue: Queue, part: ReadonlyArray<Item>) => Effect.Effect<void, Unavailable>,
) =>
  Effect.forEach(
    Map.groupBy(items, (item) => shardOf(orgOf(item), count)),
    ([shard, part]) => {
      const operation = inShard(sql, shard)(run(queues[shard]!, part))
      const later = Effect.retry(operation, recordAgain).pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("Deliveries in an unavailable shard are due again when their lease expires", cause),
        ),
        Effect.andThen(Effect.sync(() => dirty.mark(shard))),
      )
      return operation.pipe(
        Effect.catch((error) =>
          Effect.andThen(Effect.logDebug(`A shard is unavailable: ${error.error}`), Effect.forkDetach(later)),
        ),
        // Afterwards, because slots of the shard are free then.
        Effect.andThen(Effect.sync(() => dirty.mark(shard))),
      )
    },
    { concurrency: maxConcurrentShards, discard: true },
  )

/**
 * The queue of a distributed database: each shard has one. On one PostgreSQL there is one queue.
 *
 * @param make makes the queue of a shard, whose statements run in the shard of the fiber
 * @param hasDue asked before a claim that looks for what other replicas left
 */
export const overShards = (sql: SqlClient.SqlClient, make: () => Queue, hasDue: HasDue): Queue => {
  const shards = shardsOf(sql)
  if (shards === undefined) return make()
  const queues = shards.all.map(() => make())
  const { claim, nextDueAt, retryAt } = makeClaim(sql, shards, queues, hasDue)
  const [queue] = queues as [Queue, ...Array<Queue>]
  return {
    claim,
    nextDueAt,

    record: (records, now) =>
      inParts(
        sql,
        shards,
        queues,
        records,
        ({ delivery }) => delivery.orgId,
        (queue, part) => queue.record(part, now),
      ).pipe(
        Effect.andThen(
          Effect.sync(() =>
            records.forEach(({ delivery, nextAttemptAt }) =>
              retryAt(shardOf(delivery.orgId, shards.count), nextAttemptAt),
            ),
          ),
        ),
      ),

    release: (deliveries, now) =>
      inParts(
        sql,
        shards,
        queues,
        deliveries,
        ({ orgId }) => orgId,
        (queue, part) => queue.release(part, now),
      ),

    countDue: (now, limit) =>
      Effect.map(eachShard(sql, queue.countDue(now, limit)), (parts) => ({
        count: Math.min(
          limit,
          parts.reduce((sum, { count }) => sum + count, 0),
        ),
        oldestDueAt: earliest(parts.map(({ oldestDueAt }) => oldestDueAt)),
      })),

    correctTimes: (correction) =>
      Effect.map(eachShard(sql, queue.correctTimes(correction)), (moved) => {
        shards.all.forEach(shards.dirty.mark)
        return moved.reduce((sum, one) => sum + one, 0)
      }),
  }
}

/** Lanes whose oldest parked delivery is read. */
const maxLanesRead = 1_000

/**
 * Counts the due deliveries, up to `limit`, and finds the oldest. Reads the indexes of claims. For the oldest parked
 * delivery it reads the first of each lane, up to `maxLanesRead` lanes. With an org, it counts that org's.
 */
export const countDue = (sql: SqlClient.SqlClient, now: DateTime.Utc, limit: number, orgId: string | null = null) => {
  const ofOrg = orgId === null ? sql.literal("true") : sql`p.org_id = ${orgId}`
  // The head of the queue has no index by org: an org's deliveries are counted among the first of all.
  const head = sql`
    (SELECT due_at, org_id FROM pending_deliveries WHERE NOT parked AND due_at <= ${date(now)} ORDER BY due_at
     LIMIT ${limit}) AS p`
  const unclaimed = sql`(p.lease_until IS NULL OR p.lease_until <= ${date(now)})`
  return sql<{ count: number; oldest: Date | null }>`
          WITH RECURSIVE heads AS (
            SELECT ${orgId ?? ""}::text COLLATE "C" AS org_id, '' COLLATE "C" AS lane, NULL::timestamptz AS due_at, 0 AS turn
            UNION ALL
            SELECT next.*, heads.turn + 1 FROM heads CROSS JOIN LATERAL (
              SELECT p.org_id, p.lane, p.due_at FROM pending_deliveries p
              WHERE p.parked AND (p.org_id, ${parkedLane(sql)}) > (heads.org_id, heads.lane) AND ${unclaimed} AND ${ofOrg}
              ORDER BY p.org_id, ${parkedLane(sql)}, p.due_at LIMIT 1
            ) AS next WHERE heads.turn < ${maxLanesRead}
          ), due AS (
            SELECT 1 FROM ${head} WHERE ${ofOrg}
            UNION ALL
            SELECT 1 FROM pending_deliveries p WHERE parked AND ${unclaimed} AND ${ofOrg}
            LIMIT ${limit}
          ), oldest AS (
            SELECT min(due_at) AS at FROM ${head} WHERE ${ofOrg}
            UNION ALL
            SELECT min(due_at) FROM heads
          )
          SELECT (SELECT count(*)::int FROM due) AS count, (SELECT CASE WHEN min(at) > ${date(now)} THEN ${date(now)} ELSE min(at) END FROM oldest) AS oldest`.pipe(
    Effect.map(([row]) => ({
      count: row!.count,
      oldestDueAt: row!.oldest === null ? null : DateTime.fromDateUnsafe(row!.oldest),
    })),
  )
}
