import type { SqlClient, Statement } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { date } from "../database/fragments.ts"
import type { ClaimedRow } from "./claimedRows.ts"
import { claimSlots } from "./claimSlots.ts"
import { paced, paceDelay, paceOffset, paceOfLane, paceSlots } from "./claimPace.ts"
import { dueAtHead, dueInBacklog, endpointOfLane, orgExists, maxOrgsPerClaim, type Turns } from "./dueDeliveries.ts"
import { signingKeysOf } from "./signingKeysOf.ts"

type Sql = SqlClient.SqlClient

/** The CTE `ranked`: the due deliveries. `is_chosen`: the lane and the org have a free slot for it. */
const shares = (sql: Sql, claim: Claim, at: Date) => {
  const { freeBytes, commonSlots, laneHas, laneSlots, laneWorks, orgSlots } = claimSlots(sql, claim)
  // lanes: the due lanes with their endpoints and free slots.
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
        CASE WHEN ${orgExists(sql, "l")} THEN least(${laneSlots}, ${paceSlots(sql, at)}) ELSE 0 END AS slots, ${laneWorks} AS works,
        ${laneHas} = 0 AS is_new,
        w.headers, w.signature, w.retry_delays, coalesce(w.ordered, false) AS ordered,
        w.max_per_second, pace.place AS pace_place, ${paceOffset(sql, at)} AS pace_offset
      FROM (SELECT DISTINCT org_id, lane FROM due) l ${endpointOfLane(sql)} ${paceOfLane(sql)}
    ), in_lanes AS (
      -- A lane that sends in order takes only from its backlog, and only when nothing of it is elsewhere: what was queued
      -- before the endpoint sent in order is parked first.
      SELECT *, ordered AND bool_or(NOT parked) OVER (PARTITION BY lane) AS waits, row_number() OVER (
        PARTITION BY lane ORDER BY due_at, delivery_id
      ) AS lane_rank
      FROM due JOIN (SELECT org_id, lane, slots, works, is_new, ordered FROM lanes) AS l USING (org_id, lane)
    ), in_orgs AS (
      SELECT *, lane_rank <= slots AND NOT waits AS fits, row_number() OVER turn AS org_rank,
        sum(bytes::bigint) OVER turn AS org_bytes
      FROM in_lanes WINDOW turn AS (
        PARTITION BY org_id, lane_rank <= slots AND NOT waits
        ORDER BY (works OR is_new AND lane_rank = 1) DESC, lane_rank, due_at, delivery_id
      )
    ), shared AS (
      SELECT *, fits AND org_rank <= ${orgSlots("org_id")}
        AND (works OR is_new AND lane_rank = 1 OR org_rank <= ${commonSlots("org_id")})
        AND (org_bytes <= ${freeBytes("org_id")} OR org_rank = 1 AND ${freeBytes("org_id")} > 0) AS in_share
      FROM in_orgs
    ), ranked AS (
      SELECT *, in_share AND (org_rank = 1 OR ${claim.free.bytes}::bigint >=
        sum(CASE WHEN in_share THEN bytes ELSE 0 END) OVER (ORDER BY org_rank, due_at, delivery_id)) AS is_chosen
      FROM shared
    )`
}

/** Parks the deliveries without a free slot and claims the others, orgs in turn. The worker reads the CTE `claimed`. */
const taken = (sql: Sql, { claimId, leaseUntil, limit }: Claim, at: Date) =>
  // A claimed row that is parked keeps its index entry, which makes draining a backlog cheaper.
  // Rows are numbered by event before the bodies are joined: a sort with bodies would take most of the time.
  sql`
    parking AS (
      UPDATE pending_deliveries SET parked = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE NOT is_chosen AND NOT parked))
    ), taken AS (
      UPDATE pending_deliveries SET claim_id = ${claimId}, lease_until = ${date(leaseUntil)},
        due_at = CASE WHEN parked THEN due_at ELSE ${date(leaseUntil)} END
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE is_chosen ORDER BY org_rank, due_at LIMIT ${limit}))
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
      SELECT o.org_id, o.turn, b.gave >= o.share AND o.turn_share < o.slots AS is_full, l.lanes >= o.max_lanes AS is_cut,
        CASE WHEN b.gave >= o.share THEN b.last_lane ELSE l.last_lane END AS last_lane
      FROM open_orgs o
      JOIN (SELECT org_id, count(*) AS lanes, (array_agg(lane ORDER BY turn DESC))[1] AS last_lane
        FROM looked GROUP BY org_id) l USING (org_id)
      LEFT JOIN (SELECT b.org_id, count(*) AS gave, (array_agg(b.lane ORDER BY k.turn DESC))[1] AS last_lane
        FROM backlog b JOIN looked k USING (org_id, lane) GROUP BY b.org_id) b USING (org_id)
    )`

/**
 * Claims due deliveries for the free slots, at the head of the queue and in the backlog. Parks the rest of the head, so that no
 * claim reads it again and the backlog of one org costs the others nothing. `commit` is evaluated in the transaction of the
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
    ), ${dueAtHead(sql, at, turns)}, ${dueInBacklog(sql, claim, at, turns)}, ${shares(sql, claim, at)},
    ${taken(sql, claim, at)}, ${nextTurns(sql)}
    SELECT c.*, s.* FROM (
      SELECT (SELECT json_object_agg(org_id, last_lane) FROM next_turns WHERE is_full OR is_cut) AS turns,
        (SELECT org_id FROM org_turns ORDER BY turn DESC LIMIT 1) AS last_org,
        coalesce((SELECT bool_or(is_full OR is_cut) FROM next_turns), false)
          OR (SELECT max(turn) FROM org_turns) >= ${sql.literal(`${maxOrgsPerClaim}`)}
          OR EXISTS (SELECT FROM ranked WHERE waits) AS more,
        EXISTS (SELECT FROM ranked WHERE fits AND NOT is_chosen)
          OR EXISTS (SELECT FROM org_turns t WHERE turn > 0 AND NOT EXISTS (SELECT FROM open_orgs WHERE org_id = t.org_id))
          AS short,
        (SELECT count(*)::int FROM ranked WHERE NOT is_chosen AND NOT parked) AS parked,
        (SELECT min(until) FROM paces) AS paced_until
    ) s LEFT JOIN claimed c ON true`
}
