import type { SqlClient, Statement } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { date } from "../database/fragments.ts"
import type { ClaimedRow } from "./claimedRows.ts"
import { claimRoom } from "./claimRoom.ts"
import { paced, paceDelay, paceOffset, paceOfLane, paceRoom } from "./claimPace.ts"
import { liveEndpoint } from "./lanes.ts"
import { signingKeysOf } from "./signingKeysOf.ts"

/** Rows that a claim reads at the head of the queue, at least. */
export const minHeadSize = 512
/** Rows that a claim reads at the head of the queue, at most: the number doubles while a claim parks most of them. */
export const maxHeadSize = 4_096

/** Orgs with a backlog that get a turn in one claim. */
const maxOrgsPerClaim = 32
/** Lanes with a backlog that one claim reads, of all orgs together. */
const maxLanesPerClaim = 512
/** Lanes of each org that one claim may read, however many orgs there are. */
const minLanesPerOrg = 64

/** Where a claim continues in the backlog. */
export interface Turns {
  /** The org that had the last turn. */
  readonly lastOrg: string
  /** The last lane of each org that a claim read. */
  readonly lastLanes: Iterable<readonly [orgId: string, lane: string]>
  /** Rows to read at the head of the queue. */
  readonly headSize: number
}

/**
 * The recursive CTE `name`: the values of `column` that have a backlog, in the order of the index, from the first after `last`
 * around to `last`. Both ends are conditions of the index, so the last step does not read past `last`. `~` sorts after every id.
 */
const valuesInTurn = (
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

/** SQL: whether the org of a row exists. What a deleted org has in the queue is parked until a sweep has removed it. */
const isOrg = (sql: Sql, row: string) =>
  sql.literal(`(${row}.org_id = '' OR EXISTS (SELECT FROM orgs WHERE id = ${row}.org_id))`)

/** Joins a lane `l` with its live endpoint `w`, or with the time `f` at which a callback lane began to fail. */
const endpointOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL ${liveEndpoint(sql)} w ON true
  LEFT JOIN LATERAL (SELECT failing_since AS since FROM failing_callbacks WHERE lane = l.lane) f ON w.id IS NULL`

/**
 * The CTE `head`, the head of the queue. When it is full, also the CTE `tail`: the newest due deliveries of orgs that are not
 * in the head, so that these orgs do not wait until the rows between are parked.
 */
const dueNow = (sql: Sql, at: Date, { headSize }: Turns) => {
  const columns = sql`ctid AS place, org_id, lane, delivery_id, due_at, bytes, false AS parked`
  const isDue = sql`NOT parked AND due_at <= ${at}`
  return sql`
    head AS (
      SELECT ${columns} FROM pending_deliveries WHERE ${isDue}
      ORDER BY due_at LIMIT ${headSize} FOR UPDATE SKIP LOCKED
    ), tail AS (
      SELECT ${columns} FROM pending_deliveries WHERE ${isDue} AND ctid = ANY(ARRAY(
        SELECT place FROM (
          SELECT ctid AS place, org_id FROM pending_deliveries
          WHERE ${isDue} AND (SELECT count(*) FROM head) >= ${headSize} ORDER BY due_at DESC LIMIT ${maxHeadSize}
        ) AS newest WHERE org_id NOT IN (SELECT org_id FROM head)
      )) FOR UPDATE SKIP LOCKED
    )`
}

/**
 * The first deliveries of a lane `l` of the org `o` that sends in order, as many as are free without a gap. So the first of
 * the lane is always among them: while another claim has it, or it waits for its retry, none is free. `due_at` is only the
 * order.
 */
const headInOrder = (sql: Sql, at: Date) => sql`
  SELECT place, org_id, lane, delivery_id, due_at, bytes, true AS parked FROM (
    SELECT locked.*, locked.n = row_number() OVER (ORDER BY locked.n) AS has_no_gap FROM (
      SELECT place, row_number() OVER (ORDER BY due_at, delivery_id) AS n FROM (
        SELECT ctid AS place, due_at, delivery_id FROM pending_deliveries p
        WHERE l.ordered AND p.parked AND p.org_id = o.org_id AND p.lane = l.lane
        ORDER BY p.due_at, p.delivery_id LIMIT l.room
      ) AS head
    ) AS numbered CROSS JOIN LATERAL (
      SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, numbered.n FROM pending_deliveries p
      WHERE p.ctid = numbered.place AND (p.lease_until IS NULL OR p.lease_until <= ${at}) FOR UPDATE SKIP LOCKED
    ) AS locked
  ) AS head WHERE has_no_gap`

/** The CTE `backlog`: parked deliveries, orgs in turn, and within an org its lanes in turn. */
const dueInBacklog = (sql: Sql, claim: Claim, at: Date, { lastOrg }: Turns) => {
  const { byteRoom, laneRoom, orgHas, orgRoom } = claimRoom(sql, claim)
  const orgTurns = valuesInTurn(
    sql,
    "org_turns",
    "org_id",
    sql`${lastOrg}`,
    sql`true`,
    sql.literal(`${maxOrgsPerClaim}`),
  )
  const [firstLane, laneLimit] = [sql`(SELECT lane FROM start)`, sql`o.max_lanes`]
  const laneTurns = valuesInTurn(sql, "lane_turns", "lane", firstLane, sql`p.org_id = o.org_id`, laneLimit)
  // open_orgs: the orgs that have room, with their shares of the claim.
  // looked: the lanes of these orgs that have a backlog.
  // backlog: the rows that fit into each lane. It reads no others, because a row that is read is locked.
  return sql`
    ${orgTurns}, open_orgs AS MATERIALIZED (
      SELECT *, least(greatest(share, ${minLanesPerOrg}::int),
        greatest(${maxLanesPerClaim}::int / orgs, ${minLanesPerOrg}::int)) AS max_lanes
      FROM (
        SELECT org_id, turn, count(*) OVER () AS orgs,
          ${orgRoom("org_id")} AS room, ceil(${claim.limit}::numeric / count(*) OVER ())::int AS turn_share,
          least(${orgRoom("org_id")}, ceil(${claim.limit}::numeric / count(*) OVER ())::int) AS share
        FROM org_turns
        WHERE turn > 0 AND ${orgRoom("org_id")} > 0 AND ${byteRoom("org_id")} > 0
          AND ${orgRoom("org_id")} >= least(${claim.minBacklog}::int, ${orgHas("org_id")}) AND ${isOrg(sql, "org_turns")}
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
          SELECT l.lane, l.turn, ${laneRoom} AS room, coalesce(w.ordered, false) AS ordered
          FROM (SELECT * FROM looked WHERE org_id = o.org_id ORDER BY turn OFFSET 0) l
          ${endpointOfLane(sql)} WHERE ${laneRoom} > 0
        ) AS l
        CROSS JOIN LATERAL (
          SELECT * FROM (
            SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, true AS parked FROM pending_deliveries p
            WHERE NOT l.ordered AND p.parked AND p.org_id = o.org_id AND p.lane = l.lane AND p.due_at <= ${at}
              AND (p.lease_until IS NULL OR p.lease_until <= ${at})
            ORDER BY p.due_at LIMIT l.room FOR UPDATE SKIP LOCKED
          ) AS in_any_order
          UNION ALL SELECT * FROM (${headInOrder(sql, at)}) AS in_order
        ) AS head
        LIMIT o.share
      ) AS head
    )`
}

/** The CTE `ranked`: the due deliveries, with `has_room` for those that fit into their lane and into the share of their org. */
const shares = (sql: Sql, claim: Claim, at: Date) => {
  const { byteRoom, commonRoom, laneHas, laneRoom, laneWorks, orgRoom } = claimRoom(sql, claim)
  // lanes: the due lanes with their endpoints and their room.
  // in_orgs: the order within an org. Lanes that work, and the first delivery of lanes with nothing in flight, come first.
  //   The first delivery of each lane comes before the second of any.
  // shared: the deliveries within the org's share of slots and bytes.
  // ranked: the deliveries of all orgs within the free bytes; the first delivery of each org always fits.
  return sql`
    due AS (
      SELECT * FROM head UNION ALL SELECT * FROM tail UNION ALL SELECT * FROM backlog
    ), lanes AS MATERIALIZED (
      SELECT l.org_id, l.lane, w.id, w.url, w.secret, w.previous_secret, w.previous_secret_until, w.failing_since,
        coalesce(w.failures, CASE WHEN f.since IS NOT NULL THEN 1 ELSE 0 END) AS failures,
        CASE WHEN ${isOrg(sql, "l")} THEN least(${laneRoom}, ${paceRoom(sql, at)}) ELSE 0 END AS room, ${laneWorks} AS works,
        ${laneHas} = 0 AS is_new,
        w.headers, w.signature, w.retry_delays, coalesce(w.ordered, false) AS ordered,
        w.max_per_second, pace.place AS pace_place, ${paceOffset(sql, at)} AS pace_offset
      FROM (SELECT DISTINCT org_id, lane FROM due) l ${endpointOfLane(sql)} ${paceOfLane(sql)}
    ), in_lanes AS (
      -- A lane that sends in order takes only from its backlog.
      SELECT *, ordered AND NOT parked AS waits, row_number() OVER (
        PARTITION BY lane ORDER BY ordered AND NOT parked, due_at, delivery_id
      ) AS lane_rank
      FROM due JOIN (SELECT org_id, lane, room, works, is_new, ordered FROM lanes) AS l USING (org_id, lane)
    ), in_orgs AS (
      SELECT *, lane_rank <= room AND NOT waits AS fits, row_number() OVER turn AS org_rank,
        sum(bytes::bigint) OVER turn AS org_bytes
      FROM in_lanes WINDOW turn AS (
        PARTITION BY org_id, lane_rank <= room AND NOT waits
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

/** Parks the deliveries without room and claims the others, orgs in turn. The CTE `claimed` is what the worker reads. */
const taken = (sql: Sql, { claimId, leaseUntil, limit }: Claim, at: Date) =>
  // A claimed row that is parked keeps its index entry, which makes draining a backlog cheaper.
  // Rows are numbered by event before the bodies are joined: a sort with bodies would take most of the time.
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
        CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret, w.failing_since, w.failures,
        w.headers, ${signingKeysOf(sql, sql.literal("w"), at)} AS signing_keys, w.retry_delays, w.ordered,
        t.place_in_lane::int AS place_in_lane, ${paceDelay(sql)} AS delay_ms
      FROM (
        SELECT *, row_number() OVER (PARTITION BY event_id) = 1 AS is_first,
          row_number() OVER (PARTITION BY lane ORDER BY due_at, delivery_id) - 1 AS place_in_lane
        FROM taken
      ) AS t
      JOIN lanes w USING (org_id, lane)
      CROSS JOIN LATERAL (SELECT * FROM events WHERE id = t.event_id OFFSET 0) e
      LEFT JOIN LATERAL (SELECT * FROM jobs WHERE id = e.job_id AND w.id IS NULL OFFSET 0) j ON true
    ), ${paced(sql, at)}`

/** The CTE `next_turns`: where the next claim continues. An org that used its share continues after the last lane that it used. */
const nextTurns = (sql: Sql) => sql`
    next_turns AS (
      SELECT o.org_id, o.turn, b.gave >= o.share AND o.turn_share < o.room AS is_full, l.lanes >= o.max_lanes AS is_cut,
        CASE WHEN b.gave >= o.share THEN b.last_lane ELSE l.last_lane END AS last_lane
      FROM open_orgs o
      JOIN (SELECT org_id, count(*) AS lanes, (array_agg(lane ORDER BY turn DESC))[1] AS last_lane
        FROM looked GROUP BY org_id) l USING (org_id)
      LEFT JOIN (SELECT b.org_id, count(*) AS gave, (array_agg(b.lane ORDER BY k.turn DESC))[1] AS last_lane
        FROM backlog b JOIN looked k USING (org_id, lane) GROUP BY b.org_id) b USING (org_id)
    )`

/**
 * Claims the due deliveries that have room, at the head of the queue and in the backlog. Parks the rest of the head, so that
 * no claim reads it again and the backlog of one org costs the others nothing. `commit` is evaluated in the transaction of the
 * claim.
 *
 * PostgreSQL plans a statement once, perhaps while its tables are empty. So locked rows are found again by `ctid`, and others by
 * a lateral subquery that `OFFSET 0` keeps separate: no plan can then read a whole table.
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
    ), ${dueNow(sql, at, turns)}, ${dueInBacklog(sql, claim, at, turns)}, ${shares(sql, claim, at)},
    ${taken(sql, claim, at)}, ${nextTurns(sql)}
    SELECT c.*, s.* FROM (
      SELECT (SELECT json_object_agg(org_id, last_lane) FROM next_turns WHERE is_full OR is_cut) AS turns,
        (SELECT org_id FROM org_turns ORDER BY turn DESC LIMIT 1) AS last_org,
        coalesce((SELECT bool_or(is_full OR is_cut) FROM next_turns), false)
          OR (SELECT max(turn) FROM org_turns) >= ${sql.literal(`${maxOrgsPerClaim}`)} AS more,
        EXISTS (SELECT FROM ranked WHERE fits AND NOT has_room)
          OR EXISTS (SELECT FROM org_turns t WHERE turn > 0 AND NOT EXISTS (SELECT FROM open_orgs WHERE org_id = t.org_id))
          AS short,
        (SELECT count(*)::int FROM ranked WHERE NOT has_room AND NOT parked) AS parked,
        (SELECT min(until) FROM paces) AS paced_until
    ) s LEFT JOIN claimed c ON true`
}
