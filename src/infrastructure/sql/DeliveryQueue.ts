import { DateTime, Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { ClaimedDelivery } from "../../domain/Deliveries.ts"
import type { EventType } from "../../domain/Delivery.ts"
import type { Claim } from "../../domain/DeliveryQueue.ts"
import { DeliveryQueue } from "../../domain/DeliveryQueue.ts"
import { Database } from "../Database.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { texts } from "./arrays.ts"
import { date } from "./fragments.ts"
import { recordAttempts } from "./recordAttempts.ts"

interface ClaimedRow {
  readonly id: string
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly type: EventType
  readonly body: string
  readonly url: string
  readonly secret: string
  readonly secret_owner: string
  readonly previous_secret: string | null
  readonly failing_since: Date | null
  readonly parked: boolean
}

const toClaimed = (row: ClaimedRow, claimId: string): ClaimedDelivery => ({
  deliveryId: row.id,
  claimId,
  orgId: row.org_id,
  endpointId: row.endpoint_id,
  lane: row.lane,
  url: row.url,
  secrets: [row.secret, row.previous_secret]
    .filter((stored) => stored !== null)
    .map((stored) => ({ stored, owner: row.secret_owner })),
  event: row.type,
  body: row.body,
  attempts: row.attempts,
  tries: row.tries,
  failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
})

/** How much of the queue's head is read at least, so that a small claim gets past a large backlog as fast as any. */
const minHead = 512

/**
 * Takes up due deliveries. `ready` is the head of the queue; `backlog` is, of each lane with parked deliveries and room,
 * the first of those. What is due in the head and has no room in its lane is parked, so that no claim reads it again:
 * a lane's backlog costs the other lanes nothing. The lane of an endpoint is its id.
 *
 * The lanes with a backlog take turns, from the one after `last` on, and no more of them are read than give something.
 * `commit` is evaluated in the claim's transaction.
 *
 * A statement is planned once, perhaps while its tables were empty. So rows that are held are found again by their place
 * (`ctid`), and others by a lateral look that `OFFSET 0` keeps apart: no plan can read a table whole for either.
 */
export const claimSql = (
  sql: SqlClient.SqlClient,
  { claimId, now, leaseUntil, limit, laneCap, inHand }: Claim,
  last: string,
  commit: Statement.Fragment,
) => {
  const at = date(now)
  const lanes = JSON.stringify(Object.fromEntries([...inHand].map(([lane, { count, cap }]) => [lane, [count, cap]])))
  const endpoint = sql`LEFT JOIN LATERAL (SELECT * FROM webhook_endpoints WHERE id = l.lane OFFSET 0) w ON true`
  // Looked up by name, and not joined: a join would read all lanes that have a backlog before the first is taken from.
  const held = sql`(SELECT lanes FROM in_hand) -> l.lane`
  // What a lane l of an endpoint w has room for.
  const room = sql`
    (CASE WHEN w.failing_since IS NULL THEN coalesce((${held} ->> 1)::int, ${laneCap}) ELSE 1 END
      - coalesce((${held} ->> 0)::int, 0))`
  return sql<ClaimedRow>`
    WITH RECURSIVE ready AS (
      SELECT ctid AS place, lane, delivery_id, due_at, false AS parked FROM pending_deliveries
      WHERE NOT parked AND due_at <= ${at}
      ORDER BY due_at LIMIT ${Math.max(limit, minHead)} FOR UPDATE SKIP LOCKED
    ), turns AS (
      SELECT ${last}::text COLLATE "C" AS lane, 0 AS turn, false AS again
      UNION ALL
      SELECT next.lane, before.turn + 1, next.again FROM turns before CROSS JOIN LATERAL (
        (SELECT lane, before.again FROM pending_deliveries p
          WHERE p.parked AND p.lane > before.lane AND (NOT before.again OR p.lane <= ${last}) ORDER BY p.lane LIMIT 1)
        UNION ALL
        (SELECT lane, true FROM pending_deliveries p
          WHERE p.parked AND NOT before.again AND p.lane <= ${last} ORDER BY p.lane LIMIT 1)
        LIMIT 1
      ) AS next
    ), in_hand AS MATERIALIZED (
      SELECT ${lanes}::jsonb AS lanes, ${commit} AS commit
    ), backlog AS (
      -- Lane by lane, and no further than is taken: what is read is locked.
      SELECT head.* FROM (
        SELECT l.lane, ${room} AS room FROM turns l ${endpoint} WHERE l.turn > 0 AND ${room} > 0
      ) AS l
      CROSS JOIN LATERAL (
        SELECT ctid AS place, lane, delivery_id, due_at, true AS parked FROM pending_deliveries p
        WHERE p.parked AND p.lane = l.lane AND p.due_at <= ${at} AND (p.lease_until IS NULL OR p.lease_until <= ${at})
        ORDER BY p.due_at LIMIT l.room FOR UPDATE SKIP LOCKED
      ) AS head
      LIMIT ${limit}
    ), due AS (
      SELECT * FROM ready UNION ALL SELECT * FROM backlog
    ), lanes AS (
      SELECT l.lane, w.*, ${room} AS room FROM (SELECT DISTINCT lane FROM due) l ${endpoint}
    ), ranked AS (
      SELECT due.*, row_number() OVER (PARTITION BY lane ORDER BY due_at, delivery_id) <= room AS has_room
      FROM due JOIN lanes USING (lane)
    ), parking AS (
      UPDATE pending_deliveries SET parked = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE NOT has_room AND NOT parked))
    ), taken AS (
      -- What is parked stays in its index as it is: the cheaper half of a claim, and where a backlog is drained.
      UPDATE pending_deliveries SET claim_id = ${claimId}, lease_until = ${date(leaseUntil)},
        due_at = CASE WHEN parked THEN due_at ELSE ${date(leaseUntil)} END
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE has_room ORDER BY due_at LIMIT ${limit}))
      RETURNING *
    )
    SELECT t.delivery_id AS id, e.org_id, w.id AS endpoint_id, t.lane, t.attempts, t.tries, e.type, e.body,
      coalesce(w.url, j.callback_url) AS url, coalesce(w.secret, j.callback_secret) AS secret,
      coalesce(w.id, j.callback_secret_owner) AS secret_owner,
      CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret, w.failing_since, t.parked
    FROM taken t JOIN lanes w USING (lane)
    CROSS JOIN LATERAL (SELECT * FROM events WHERE id = t.event_id OFFSET 0) e
    LEFT JOIN LATERAL (SELECT * FROM jobs WHERE id = e.job_id AND w.id IS NULL OFFSET 0) j ON true
    ORDER BY t.delivery_id`
}

/** Of the lanes that gave of their backlog, the one whose turn came last, when they began after `last`. */
const lastTurn = (rows: ReadonlyArray<ClaimedRow>, last: string) => {
  const lanes = rows.filter(({ parked }) => parked).map((row) => row.lane)
  const before = lanes.filter((lane) => lane <= last)
  const [first = last, ...others] = before.length > 0 ? before : lanes
  return others.reduce((a, b) => (a > b ? a : b), first)
}

/**
 * Gives claims back; of what was canceled meanwhile, which is in the queue no more, the claim ends. The deliveries are
 * locked first, in the order of their ids, as by everyone who changes them.
 */
const releaseSql = (sql: SqlClient.SqlClient, unsorted: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) => {
  const deliveries = unsorted.toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
  const ids = texts(deliveries.map(({ deliveryId }) => deliveryId))
  const claims = texts(deliveries.map(({ claimId }) => claimId))
  return sql`
    WITH held AS (
      SELECT given.* FROM unnest(${ids}, ${texts(deliveries.map(({ lane }) => lane))}, ${claims})
        AS given (id, lane, claim_id)
      CROSS JOIN LATERAL (SELECT id FROM deliveries WHERE id = given.id FOR NO KEY UPDATE) AS d
    ), queued AS (
      UPDATE pending_deliveries p SET claim_id = NULL, lease_until = NULL,
        due_at = CASE WHEN p.parked THEN p.due_at ELSE ${date(now)} END, parked = true FROM held
      WHERE p.lane = held.lane AND p.delivery_id = held.id AND p.claim_id = held.claim_id
    )
    UPDATE deliveries d SET claim_id = NULL, lease_until = NULL FROM held
    WHERE d.id = held.id AND d.claim_id = held.claim_id`
}

/** The outbox in PostgreSQL. */
export const layer = Layer.effect(
  DeliveryQueue,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { kind } = yield* Database
    // A claim or a record that a crash of PostgreSQL takes is made again: it is not waited for until it is on the disk. For
    // the embedded database the end of the process is such a crash, and nothing but commits that wait puts its log there: a
    // claim ends with the process in any case, a record is to be kept.
    const soon = sql`set_config('synchronous_commit', 'off', true)`
    const recorded = kind === "postgres" ? soon : sql`NULL`
    /** The lane with a backlog that had its turn last. */
    let last = ""

    return DeliveryQueue.of({
      claim: (claim) =>
        Effect.suspend(() => claimSql(sql, claim, last, soon)).pipe(
          Effect.map((rows) => {
            last = lastTurn(rows, last)
            return rows.map((row) => toClaimed(row, claim.claimId))
          }),
          orUnavailable,
        ),

      record: (records, now) =>
        records.length === 0 ? Effect.void : recordAttempts(sql, records, now, recorded).pipe(orUnavailable),

      release: (deliveries, now) =>
        deliveries.length === 0 ? Effect.void : releaseSql(sql, deliveries, now).pipe(Effect.asVoid, orUnavailable),

      nextDueAt: sql<{ next: Date | null }>`
        SELECT min(due_at) AS next FROM pending_deliveries WHERE NOT parked`.pipe(
        Effect.map(([row]) => (row?.next == null ? null : DateTime.fromDateUnsafe(row.next))),
        orUnavailable,
      ),
    })
  }),
)
