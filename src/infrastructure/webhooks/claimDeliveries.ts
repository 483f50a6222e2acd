import { DateTime } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { ClaimedDelivery } from "../../domain/webhooks/Deliveries.ts"
import type { EventType } from "../../domain/webhooks/Delivery.ts"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { date } from "../database/fragments.ts"
import { isCallbackLane, liveEndpoint } from "./lanes.ts"

/** What a claim returns: a row for each delivery, and at least one, for `turns` and `more`. */
export interface ClaimedRow {
  /** `null` in the one row of a claim that took nothing. */
  readonly id: string | null
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly type: EventType
  /** `null` but in the first row of each event. */
  readonly body: string | null
  readonly event_id: string
  readonly url: string
  readonly secret: string
  readonly secret_owner: string
  readonly previous_secret: string | null
  readonly failing_since: Date | null
  readonly failures: number
  /** Of each org that had a turn, the last lane that was looked at. */
  readonly turns: Readonly<Record<string, string>> | null
  /** The org that had its turn last. */
  readonly last_org: string | null
  /** Whether a backlog was not looked through to its end, or an org had its share of it. */
  readonly more: boolean
  /** Whether an org had no share left for something that is due. */
  readonly short: boolean
  /** How many due deliveries at the head had no room. */
  readonly parked: number
}

/** The deliveries of a claim's rows, in the order of their ids. */
export const toClaimed = (rows: ReadonlyArray<ClaimedRow>, claimId: string): ReadonlyArray<ClaimedDelivery> => {
  const bodies = new Map<string, string>()
  for (const { body, event_id } of rows) if (body !== null) bodies.set(event_id, body)
  return rows
    .filter((row): row is ClaimedRow & { readonly id: string } => row.id !== null)
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map((row) => ({
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
      body: bodies.get(row.event_id)!,
      attempts: row.attempts,
      tries: row.tries,
      failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
      failures: row.failures,
    }))
}

/** How many of the queue's head a claim reads: more while what it reads has no room, for then the rest is parked. */
export const minHead = 512
export const maxHead = 4_096

/** How many orgs with a backlog have their turn in one claim. */
const maxOrgs = 32
/** How many lanes are looked at in one claim, of all orgs together, and of each at least. */
const maxLanes = 512
const minLanes = 64

/** Where a claim goes on in the backlog. */
export interface Turns {
  /** The org that had its turn last. */
  readonly lastOrg: string
  /** Of each org, the last lane that was looked at. */
  readonly lastLanes: ReadonlyMap<string, string>
  /** How many of the queue's head are read. */
  readonly head: number
}

/**
 * The values of `column` in `pending_deliveries` that have a backlog, from the one after `last` on, and around once. Both ends
 * are conditions of the index, so that the last look does not read on behind `last`: no id is behind `~`.
 */
const around = (
  sql: SqlClient.SqlClient,
  name: string,
  column: string,
  last: Statement.Fragment,
  within: Statement.Fragment,
  max: Statement.Fragment,
) => {
  const [turns, at] = [sql.literal(name), sql.literal(column)]
  return sql`${turns} AS (
    SELECT ${last}::text COLLATE "C" AS ${at}, 0 AS turn, false AS again
    UNION ALL
    SELECT next.${at}, before.turn + 1, next.again FROM ${turns} before CROSS JOIN LATERAL (
      (SELECT ${at}, before.again FROM pending_deliveries p
        WHERE p.parked AND ${within} AND p.${at} > before.${at}
          AND p.${at} <= (CASE WHEN before.again THEN ${last}::text ELSE '~' END) COLLATE "C"
        ORDER BY p.${at} LIMIT 1)
      UNION ALL
      (SELECT ${at}, true FROM pending_deliveries p
        WHERE p.parked AND ${within} AND NOT before.again AND p.${at} <= ${last} ORDER BY p.${at} LIMIT 1)
      LIMIT 1
    ) AS next WHERE before.turn < ${max}
  )`
}

/**
 * Claims due deliveries. `head` is the head of the queue; when that is full, `tail` is what came last of orgs that are not
 * in it, so that they need not wait until the rest is parked. `backlog` is taken from the orgs that have parked deliveries, in
 * turns from the org after the last, and from the lanes of each in turns. What is due at the head and has no room in its lane,
 * or whose org has had its share, is parked, so that no claim reads it again: a backlog costs the others nothing.
 * What is claimed goes round the orgs, one delivery of each at a time. `commit` is evaluated in the claim's transaction.
 *
 * A statement is planned once, perhaps while its tables were empty. So rows that are held are found again by their place
 * (`ctid`), and others by a lateral look that `OFFSET 0` keeps apart: no plan can read a table whole for either.
 */
export const claimSql = (sql: SqlClient.SqlClient, claim: Claim, turns: Turns, commit: Statement.Fragment) => {
  const { claimId, limit } = claim
  const at = date(claim.now)
  const lanes = JSON.stringify(
    Object.fromEntries([...claim.lanes].map(([lane, { cap, count, works }]) => [lane, [count, cap, works ? 1 : 0]])),
  )
  const orgs = JSON.stringify(
    Object.fromEntries([...claim.orgs].map(([org, { bytes, count }]) => [org, [count, bytes]])),
  )
  const endpoint = sql`LEFT JOIN LATERAL ${liveEndpoint(sql)} w ON true`
  const failing = sql`LEFT JOIN LATERAL (SELECT failing_since AS since FROM failing_callbacks WHERE lane = l.lane) f
    ON w.id IS NULL`
  // Looked up by name, and not joined: a join would read all lanes that have a backlog before the first is taken from.
  const held = sql`(SELECT lanes FROM state) -> coalesce(w.id, l.lane)`
  const heldOf = (org: string) => sql`(SELECT orgs FROM state) -> ${sql.literal(org)}`
  // How many a lane l has room for: none when its endpoint is gone or inactive.
  const room = sql`
    (CASE WHEN w.id IS NULL AND NOT ${isCallbackLane(sql)} THEN 0
      WHEN w.failing_since IS NULL AND f.since IS NULL THEN coalesce((${held} ->> 1)::int, ${claim.laneCap})
      ELSE 1 END - coalesce((${held} ->> 0)::int, 0))`
  const [free, reserve] = [sql`${claim.free.count}::int`, sql`${claim.reserve}::float8`]
  const orgHas = (org: string) => sql`coalesce((${heldOf(org)} ->> 0)::int, 0)`
  // So much that `reserve` times what the org then has stays free: rounded up, so that the last slot can be had.
  const orgRoom = (org: string) => sql`ceil((${free} - ${reserve} * ${orgHas(org)}) / (1 + ${reserve}))::int`
  // How much of that is left until the org has three quarters of what it may have.
  const commonRoom = (org: string) =>
    sql`(ceil((${free} + ${orgHas(org)}) / (1 + ${reserve}) * 0.75)::int - ${orgHas(org)})`
  const byteRoom = (org: string) => sql`
    ((${claim.free.bytes}::bigint - ${reserve} * coalesce((${heldOf(org)} ->> 1)::bigint, 0)) / (1 + ${reserve}))`
  return sql<ClaimedRow>`
    WITH RECURSIVE state AS MATERIALIZED (
      SELECT ${lanes}::jsonb AS lanes, ${orgs}::jsonb AS orgs,
        ${JSON.stringify(Object.fromEntries(turns.lastLanes))}::jsonb AS last_lanes, ${commit} AS commit
    ), head AS (
      SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, false AS parked FROM pending_deliveries
      WHERE NOT parked AND due_at <= ${at}
      ORDER BY due_at LIMIT ${turns.head} FOR UPDATE SKIP LOCKED
    ), tail AS (
      SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, false AS parked FROM pending_deliveries
      WHERE NOT parked AND due_at <= ${at} AND ctid = ANY(ARRAY(
        SELECT place FROM (
          SELECT ctid AS place, org_id FROM pending_deliveries
          WHERE NOT parked AND due_at <= ${at} AND (SELECT count(*) FROM head) >= ${turns.head}
          ORDER BY due_at DESC LIMIT ${maxHead}
        ) AS newest WHERE org_id NOT IN (SELECT org_id FROM head)
      )) FOR UPDATE SKIP LOCKED
    ), ${around(sql, "org_turns", "org_id", sql`${turns.lastOrg}`, sql.literal("true"), sql.literal(String(maxOrgs)))}, open_orgs AS MATERIALIZED (
      SELECT *, least(greatest(share, ${minLanes}::int), greatest(${maxLanes}::int / orgs, ${minLanes}::int)) AS max_lanes
      FROM (
        SELECT org_id, turn, count(*) OVER () AS orgs,
          ${orgRoom("org_id")} AS room, ceil(${limit}::numeric / count(*) OVER ())::int AS turn_share,
          least(${orgRoom("org_id")}, ceil(${limit}::numeric / count(*) OVER ())::int) AS share
        FROM org_turns
        WHERE turn > 0 AND ${orgRoom("org_id")} > 0 AND ${byteRoom("org_id")} > 0
          AND ${orgRoom("org_id")} >= least(${claim.minBacklog}::int, ${orgHas("org_id")})
      ) AS o
    ), looked AS MATERIALIZED (
      SELECT o.org_id, l.lane, l.turn FROM open_orgs o CROSS JOIN LATERAL (
        WITH RECURSIVE start AS MATERIALIZED (
          SELECT coalesce((SELECT last_lanes FROM state) ->> o.org_id, '') AS lane
        ), ${around(sql, "lane_turns", "lane", sql.literal("(SELECT lane FROM start)"), sql.literal("p.org_id = o.org_id"), sql.literal("o.max_lanes"))}
        SELECT lane, turn FROM lane_turns WHERE turn > 0
      ) AS l
    ), backlog AS MATERIALIZED (
      -- Lane by lane, and no further than is taken: what is read is locked.
      SELECT head.* FROM open_orgs o CROSS JOIN LATERAL (
        SELECT head.* FROM (
          SELECT l.lane, l.turn, ${room} AS room FROM (SELECT * FROM looked WHERE org_id = o.org_id ORDER BY turn OFFSET 0) l
          ${endpoint} ${failing} WHERE ${room} > 0
        ) AS l
        CROSS JOIN LATERAL (
          SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, true AS parked FROM pending_deliveries p
          WHERE p.parked AND p.org_id = o.org_id AND p.lane = l.lane AND p.due_at <= ${at}
            AND (p.lease_until IS NULL OR p.lease_until <= ${at})
          ORDER BY p.due_at LIMIT l.room FOR UPDATE SKIP LOCKED
        ) AS head
        LIMIT o.share
      ) AS head
    ), due AS (
      SELECT * FROM head UNION ALL SELECT * FROM tail UNION ALL SELECT * FROM backlog
    ), lanes AS (
      SELECT l.org_id, l.lane, w.id, w.url, w.secret, w.previous_secret, w.previous_secret_until, w.failing_since, 
        coalesce(w.failures, CASE WHEN f.since IS NOT NULL THEN 1 ELSE 0 END) AS failures, ${room} AS room,
        coalesce((${held} ->> 2)::int, 0) = 1 AS works, coalesce((${held} ->> 0)::int, 0) = 0 AS is_new
      FROM (SELECT DISTINCT org_id, lane FROM due) l ${endpoint} ${failing}
    ), in_lanes AS (
      SELECT due.*, row_number() OVER (PARTITION BY lane ORDER BY due_at, delivery_id) AS lane_rank, room, works,
        is_new
      FROM due JOIN lanes USING (org_id, lane)
    ), in_orgs AS (
      -- Of an org, first the lanes that work or have nothing here; the first of each lane before the second of any.
      SELECT *, lane_rank <= room AS fits, row_number() OVER turn AS org_rank, sum(bytes::bigint) OVER turn AS org_bytes
      FROM in_lanes WINDOW turn AS (
        PARTITION BY org_id, lane_rank <= room
        ORDER BY (works OR is_new AND lane_rank = 1) DESC, lane_rank, due_at, delivery_id
      )
    ), shared AS (
      SELECT *, fits AND org_rank <= ${orgRoom("org_id")}
        AND (works OR is_new AND lane_rank = 1 OR org_rank <= ${commonRoom("org_id")})
        AND (org_bytes <= ${byteRoom("org_id")} OR org_rank = 1 AND ${byteRoom("org_id")} > 0) AS in_share
      FROM in_orgs
    ), ranked AS (
      -- Of all orgs together no more bytes than are free, but for the first delivery of each.
      SELECT *, in_share AND (org_rank = 1 OR ${claim.free.bytes}::bigint >=
        sum(CASE WHEN in_share THEN bytes ELSE 0 END) OVER (ORDER BY org_rank, due_at, delivery_id)) AS has_room
      FROM shared
    ), parking AS (
      UPDATE pending_deliveries SET parked = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE NOT has_room AND NOT parked))
    ), taken AS (
      -- What is parked stays in its index as it is: the cheaper half of a claim, and where a backlog is drained.
      UPDATE pending_deliveries SET claim_id = ${claimId}, lease_until = ${date(claim.leaseUntil)},
        due_at = CASE WHEN parked THEN due_at ELSE ${date(claim.leaseUntil)} END
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE has_room ORDER BY org_rank, due_at LIMIT ${limit}))
      RETURNING *
    ), claimed AS (
      SELECT t.delivery_id AS id, e.org_id, w.id AS endpoint_id, t.lane, t.attempts, t.tries, e.type,
        CASE WHEN t.is_first THEN e.body END AS body, t.event_id, coalesce(w.url, j.callback_url) AS url,
        coalesce(w.secret, j.callback_secret) AS secret,
        coalesce(w.id, j.callback_secret_owner) AS secret_owner,
        CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret, w.failing_since, w.failures
      FROM (
        -- Numbered before the bodies are joined: to sort those takes longer than all else.
        SELECT *, row_number() OVER (PARTITION BY event_id) = 1 AS is_first FROM taken
      ) AS t JOIN lanes w USING (org_id, lane)
      CROSS JOIN LATERAL (SELECT * FROM events WHERE id = t.event_id OFFSET 0) e
      LEFT JOIN LATERAL (SELECT * FROM jobs WHERE id = e.job_id AND w.id IS NULL OFFSET 0) j ON true
    ), orgs AS (
      -- An org that had its share goes on after the lane that was the last to give of it.
      SELECT o.org_id, o.turn, b.gave >= o.share AND o.turn_share < o.room AS is_full, l.lanes >= o.max_lanes AS is_cut,
        CASE WHEN b.gave >= o.share THEN b.last_lane ELSE l.last_lane END AS last_lane
      FROM open_orgs o
      JOIN (SELECT org_id, count(*) AS lanes, (array_agg(lane ORDER BY turn DESC))[1] AS last_lane
        FROM looked GROUP BY org_id) l USING (org_id)
      LEFT JOIN (SELECT b.org_id, count(*) AS gave, (array_agg(b.lane ORDER BY k.turn DESC))[1] AS last_lane
        FROM backlog b JOIN looked k USING (org_id, lane) GROUP BY b.org_id) b USING (org_id)
    )
    SELECT c.*, s.* FROM (
      SELECT (SELECT json_object_agg(org_id, last_lane) FROM orgs WHERE is_full OR is_cut) AS turns,
        (SELECT org_id FROM org_turns ORDER BY turn DESC LIMIT 1) AS last_org,
        coalesce((SELECT bool_or(is_full OR is_cut) FROM orgs), false)
          OR (SELECT max(turn) FROM org_turns) >= ${sql.literal(String(maxOrgs))} AS more,
        EXISTS (SELECT FROM ranked WHERE fits AND NOT has_room)
          OR EXISTS (SELECT FROM org_turns t WHERE turn > 0 AND NOT EXISTS (SELECT FROM open_orgs WHERE org_id = t.org_id))
          AS short,
        (SELECT count(*)::int FROM ranked WHERE NOT has_room AND NOT parked) AS parked
    ) s LEFT JOIN claimed c ON true`
}
