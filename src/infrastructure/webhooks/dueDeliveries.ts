import type { SqlClient, Statement } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { claimSlots } from "./claimSlots.ts"
import { liveEndpoint } from "./laneSql.ts"

type Sql = SqlClient.SqlClient

/** Rows that a claim reads at the head of the queue, at least. */
export const minHeadSize = 512
/** Rows that a claim reads at the head of the queue, at most: the number doubles while a claim parks most of them. */
export const maxHeadSize = 4_096

/** Orgs with a backlog that get a turn in one claim. */
export const maxOrgsPerClaim = 32
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
  sql: Sql,
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

/** SQL: whether the org of a row exists. Deliveries of a deleted org stay parked until a sweep removes them. */
export const orgExists = (sql: Sql, row: string) =>
  sql.literal(`(${row}.org_id = '' OR EXISTS (SELECT FROM orgs WHERE id = ${row}.org_id))`)

/** Joins a lane `l` with its live endpoint `w`, or with the time `f` at which a callback lane began to fail. */
export const endpointOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL ${liveEndpoint(sql)} w ON true
  LEFT JOIN LATERAL (SELECT failing_since AS since FROM failing_callbacks WHERE lane = l.lane) f ON w.id IS NULL`

/**
 * The CTE `head`, the head of the queue. When it is full, also the CTE `tail`: the newest due deliveries of orgs that are not
 * in the head, so that these orgs do not wait until the rows between are parked.
 */
export const dueAtHead = (sql: Sql, at: Date, { headSize }: Turns) => {
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
        ORDER BY p.due_at, p.delivery_id LIMIT l.slots
      ) AS head
    ) AS numbered CROSS JOIN LATERAL (
      SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, numbered.n FROM pending_deliveries p
      WHERE p.ctid = numbered.place AND (p.lease_until IS NULL OR p.lease_until <= ${at}) FOR UPDATE SKIP LOCKED
    ) AS locked
  ) AS head WHERE has_no_gap`

/** The CTE `backlog`: parked deliveries, orgs in turn, and within an org its lanes in turn. */
export const dueInBacklog = (sql: Sql, claim: Claim, at: Date, { lastOrg }: Turns) => {
  const { freeBytes, laneSlots, orgHas, orgSlots } = claimSlots(sql, claim)
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
  // open_orgs: the orgs that have free slots, with their shares of the claim.
  // looked: the lanes of these orgs that have a backlog.
  // backlog: the rows that fit into each lane. It reads no others, because a row that is read is locked.
  return sql`
    ${orgTurns}, open_orgs AS MATERIALIZED (
      SELECT *, least(greatest(share, ${minLanesPerOrg}::int),
        greatest(${maxLanesPerClaim}::int / orgs, ${minLanesPerOrg}::int)) AS max_lanes
      FROM (
        SELECT org_id, turn, count(*) OVER () AS orgs,
          ${orgSlots("org_id")} AS slots, ceil(${claim.limit}::numeric / count(*) OVER ())::int AS turn_share,
          least(${orgSlots("org_id")}, ceil(${claim.limit}::numeric / count(*) OVER ())::int) AS share
        FROM org_turns
        WHERE turn > 0 AND ${orgSlots("org_id")} > 0 AND ${freeBytes("org_id")} > 0
          AND ${orgSlots("org_id")} >= least(${claim.minBacklog}::int, ${orgHas("org_id")}) AND ${orgExists(sql, "org_turns")}
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
          SELECT l.lane, l.turn, ${laneSlots} AS slots, coalesce(w.ordered, false) AS ordered
          FROM (SELECT * FROM looked WHERE org_id = o.org_id ORDER BY turn OFFSET 0) l
          ${endpointOfLane(sql)} WHERE ${laneSlots} > 0
        ) AS l
        CROSS JOIN LATERAL (
          SELECT * FROM (
            SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, true AS parked FROM pending_deliveries p
            WHERE NOT l.ordered AND p.parked AND p.org_id = o.org_id AND p.lane = l.lane AND p.due_at <= ${at}
              AND (p.lease_until IS NULL OR p.lease_until <= ${at})
            ORDER BY p.due_at LIMIT l.slots FOR UPDATE SKIP LOCKED
          ) AS in_any_order
          UNION ALL SELECT * FROM (${headInOrder(sql, at)}) AS in_order
        ) AS head
        LIMIT o.share
      ) AS head
    )`
}
