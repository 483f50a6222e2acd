import type { SqlClient, Statement } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { date } from "../database/fragments.ts"
import type { ClaimedRow } from "./claimedRows.ts"
import { claimRoom } from "./claimRoom.ts"
import { liveEndpoint } from "./lanes.ts"

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
  readonly lastLanes: Iterable<readonly [orgId: string, lane: string]>
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

type Sql = SqlClient.SqlClient

/** The endpoint `w` of a lane `l`, and when a callback lane began to fail. */
const endpointOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL ${liveEndpoint(sql)} w ON true
  LEFT JOIN LATERAL (SELECT failing_since AS since FROM failing_callbacks WHERE lane = l.lane) f ON w.id IS NULL`

/**
 * The head of the queue. When the head is full, also its tail: what came last of orgs that are not in the head, so that they
 * do not wait until the rest is parked.
 */
const dueNow = (sql: Sql, at: Date, { head }: Turns) => {
  const columns = sql`ctid AS place, org_id, lane, delivery_id, due_at, bytes, false AS parked`
  const isDue = sql`NOT parked AND due_at <= ${at}`
  return sql`
    head AS (
      SELECT ${columns} FROM pending_deliveries WHERE ${isDue}
      ORDER BY due_at LIMIT ${head} FOR UPDATE SKIP LOCKED
    ), tail AS (
      SELECT ${columns} FROM pending_deliveries WHERE ${isDue} AND ctid = ANY(ARRAY(
        SELECT place FROM (
          SELECT ctid AS place, org_id FROM pending_deliveries
          WHERE ${isDue} AND (SELECT count(*) FROM head) >= ${head} ORDER BY due_at DESC LIMIT ${maxHead}
        ) AS newest WHERE org_id NOT IN (SELECT org_id FROM head)
      )) FOR UPDATE SKIP LOCKED
    )`
}

/** The parked deliveries of orgs in turns, from the org after the last, and of the lanes of each org in turns. */
const dueInBacklog = (sql: Sql, claim: Claim, at: Date, { lastOrg }: Turns) => {
  const { byteRoom, laneRoom, orgHas, orgRoom } = claimRoom(sql, claim)
  const orgTurns = around(sql, "org_turns", "org_id", sql`${lastOrg}`, sql`true`, sql.literal(`${maxOrgs}`))
  const [firstLane, laneLimit] = [sql`(SELECT lane FROM start)`, sql`o.max_lanes`]
  const laneTurns = around(sql, "lane_turns", "lane", firstLane, sql`p.org_id = o.org_id`, laneLimit)
  // open_orgs: the orgs that have room, and their shares of the claim.
  // looked: the lanes of each that have a backlog.
  // backlog: what is taken of each lane, and no row more, because a row that is read is locked.
  return sql`
    ${orgTurns}, open_orgs AS MATERIALIZED (
      SELECT *, least(greatest(share, ${minLanes}::int), greatest(${maxLanes}::int / orgs, ${minLanes}::int)) AS max_lanes
      FROM (
        SELECT org_id, turn, count(*) OVER () AS orgs,
          ${orgRoom("org_id")} AS room, ceil(${claim.limit}::numeric / count(*) OVER ())::int AS turn_share,
          least(${orgRoom("org_id")}, ceil(${claim.limit}::numeric / count(*) OVER ())::int) AS share
        FROM org_turns
        WHERE turn > 0 AND ${orgRoom("org_id")} > 0 AND ${byteRoom("org_id")} > 0
          AND ${orgRoom("org_id")} >= least(${claim.minBacklog}::int, ${orgHas("org_id")})
      ) AS o
    ), looked AS MATERIALIZED (
      SELECT o.org_id, l.lane, l.turn FROM open_orgs o CROSS JOIN LATERAL (
        WITH RECURSIVE start AS MATERIALIZED (
          SELECT coalesce((SELECT last_lanes FROM state) ->> o.org_id, '') AS lane
        ), ${laneTurns}
        SELECT lane, turn FROM lane_turns WHERE turn > 0
      ) AS l
    ), backlog AS MATERIALIZED (
      SELECT head.* FROM open_orgs o CROSS JOIN LATERAL (
        SELECT head.* FROM (
          SELECT l.lane, l.turn, ${laneRoom} AS room
          FROM (SELECT * FROM looked WHERE org_id = o.org_id ORDER BY turn OFFSET 0) l
          ${endpointOfLane(sql)} WHERE ${laneRoom} > 0
        ) AS l
        CROSS JOIN LATERAL (
          SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, true AS parked FROM pending_deliveries p
          WHERE p.parked AND p.org_id = o.org_id AND p.lane = l.lane AND p.due_at <= ${at}
            AND (p.lease_until IS NULL OR p.lease_until <= ${at})
          ORDER BY p.due_at LIMIT l.room FOR UPDATE SKIP LOCKED
        ) AS head
        LIMIT o.share
      ) AS head
    )`
}

/** Which of the due deliveries have room in their lane, and are in the share of their org. */
const shares = (sql: Sql, claim: Claim) => {
  const { byteRoom, commonRoom, laneHas, laneRoom, laneWorks, orgRoom } = claimRoom(sql, claim)
  // lanes: each due lane with its endpoint and its room.
  // in_orgs: of an org, first the lanes that work or have nothing here, and the first of each lane before the second of any.
  // shared: what the org's share of slots and bytes allows.
  // ranked: of all orgs together no more bytes than are free, but for the first delivery of each.
  return sql`
    due AS (
      SELECT * FROM head UNION ALL SELECT * FROM tail UNION ALL SELECT * FROM backlog
    ), lanes AS (
      SELECT l.org_id, l.lane, w.id, w.url, w.secret, w.previous_secret, w.previous_secret_until, w.failing_since,
        coalesce(w.failures, CASE WHEN f.since IS NOT NULL THEN 1 ELSE 0 END) AS failures, ${laneRoom} AS room,
        ${laneWorks} AS works, ${laneHas} = 0 AS is_new
      FROM (SELECT DISTINCT org_id, lane FROM due) l ${endpointOfLane(sql)}
    ), in_lanes AS (
      SELECT due.*, row_number() OVER (PARTITION BY lane ORDER BY due_at, delivery_id) AS lane_rank, room, works,
        is_new
      FROM due JOIN lanes USING (org_id, lane)
    ), in_orgs AS (
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
      SELECT *, in_share AND (org_rank = 1 OR ${claim.free.bytes}::bigint >=
        sum(CASE WHEN in_share THEN bytes ELSE 0 END) OVER (ORDER BY org_rank, due_at, delivery_id)) AS has_room
      FROM shared
    )`
}

/** Parks what has no room and claims the rest, one delivery of each org at a time; `claimed` is what the worker reads of it. */
const taken = (sql: Sql, { claimId, leaseUntil, limit }: Claim, at: Date) =>
  // A parked row keeps its place in its index: that is the cheaper half of a claim, and of draining a backlog.
  // Events are numbered before their bodies are joined: sorting the bodies would take longer than all else.
  sql`
    parking AS (
      UPDATE pending_deliveries SET parked = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE NOT has_room AND NOT parked))
    ), taken AS (
      UPDATE pending_deliveries SET claim_id = ${claimId}, lease_until = ${date(leaseUntil)},
        due_at = CASE WHEN parked THEN due_at ELSE ${date(leaseUntil)} END
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE has_room ORDER BY org_rank, due_at LIMIT ${limit}))
      RETURNING *
    ), claimed AS (
      SELECT t.delivery_id AS id, e.org_id, w.id AS endpoint_id, t.lane, t.attempts, t.tries, e.type,
        CASE WHEN t.is_first THEN e.body END AS body, t.event_id, coalesce(w.url, j.callback_url) AS url,
        coalesce(w.secret, j.callback_secret) AS secret,
        coalesce(w.id, j.callback_secret_owner) AS secret_owner,
        CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret, w.failing_since, w.failures
      FROM (SELECT *, row_number() OVER (PARTITION BY event_id) = 1 AS is_first FROM taken) AS t
      JOIN lanes w USING (org_id, lane)
      CROSS JOIN LATERAL (SELECT * FROM events WHERE id = t.event_id OFFSET 0) e
      LEFT JOIN LATERAL (SELECT * FROM jobs WHERE id = e.job_id AND w.id IS NULL OFFSET 0) j ON true
    )`

/** Where the next claim goes on in the backlog. An org that had its share goes on after the last lane that gave of it. */
const nextTurns = (sql: Sql) => sql`
    orgs AS (
      SELECT o.org_id, o.turn, b.gave >= o.share AND o.turn_share < o.room AS is_full, l.lanes >= o.max_lanes AS is_cut,
        CASE WHEN b.gave >= o.share THEN b.last_lane ELSE l.last_lane END AS last_lane
      FROM open_orgs o
      JOIN (SELECT org_id, count(*) AS lanes, (array_agg(lane ORDER BY turn DESC))[1] AS last_lane
        FROM looked GROUP BY org_id) l USING (org_id)
      LEFT JOIN (SELECT b.org_id, count(*) AS gave, (array_agg(b.lane ORDER BY k.turn DESC))[1] AS last_lane
        FROM backlog b JOIN looked k USING (org_id, lane) GROUP BY b.org_id) b USING (org_id)
    )`

/**
 * Claims due deliveries: those at the head of the queue and those of the backlog that have room. The rest of the head is
 * parked, so that no claim reads it again and a backlog costs the others nothing. `commit` is evaluated in the claim's
 * transaction.
 *
 * A statement is planned once, perhaps while its tables were empty. So rows that are held are found again by their place
 * (`ctid`), and others by a lateral look that `OFFSET 0` keeps apart: no plan can read a table whole for either.
 */
export const claimSql = (sql: Sql, claim: Claim, turns: Turns, commit: Statement.Fragment) => {
  const at = date(claim.now)
  const lanes = [...claim.lanes].map(([lane, { cap, count, works }]) => [lane, [count, cap, works ? 1 : 0]])
  const orgs = [...claim.orgs].map(([org, { bytes, count }]) => [org, [count, bytes]])
  return sql<ClaimedRow>`
    WITH RECURSIVE state AS MATERIALIZED (
      SELECT ${JSON.stringify(Object.fromEntries(lanes))}::jsonb AS lanes,
        ${JSON.stringify(Object.fromEntries(orgs))}::jsonb AS orgs,
        ${JSON.stringify(Object.fromEntries(turns.lastLanes))}::jsonb AS last_lanes, ${commit} AS commit
    ), ${dueNow(sql, at, turns)}, ${dueInBacklog(sql, claim, at, turns)}, ${shares(sql, claim)},
    ${taken(sql, claim, at)}, ${nextTurns(sql)}
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
