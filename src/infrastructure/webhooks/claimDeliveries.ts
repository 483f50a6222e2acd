import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { Claim, ClaimedDelivery } from "../../domain/webhooks/DeliveryQueue.ts"
import { orderedBatchSize, throttleHorizonMillis, throttleMargin } from "../../domain/webhooks/Slots.ts"
import { date, dateOrNull, floats, integers, texts } from "../database/fragments.ts"
import { isSettled } from "../queue/pickDue.ts"
import { isCallbackLane, liveEndpoint, backlogLane } from "../queue/lanes.ts"
import { type Found, isBefore, maxHeadSize, type Place, placeBefore, type Reads } from "../queue/queuePositions.ts"
import { sentBody } from "../../domain/webhooks/Event.ts"
import type { HeaderNames, PayloadKind } from "../../domain/webhooks/WebhookEndpoint.ts"
import { signingKeysOf } from "./signingKeysSql.ts"

type Sql = SqlClient.SqlClient

/** The CTE `ranked`: the due deliveries. `is_chosen`: the lane and the org have a free slot for it. */
const shares = (sql: Sql, claim: Claim) => {
  const { freeBytes, commonSlots, laneHas, laneSlots, laneWorks, orgSlots } = claimSlots(sql, claim)
  // lanes: the due lanes with their endpoints and free slots.
  // in_orgs: the order within an org. Lanes that work, and the first delivery of lanes with nothing in flight, come
  // first. The first delivery of each lane comes before the second of any.
  // shared: the deliveries within the org's share of slots and bytes.
  // ranked: the deliveries of all orgs within the free bytes; the first delivery of each org always fits.
  return sql`
    due AS (
      SELECT * FROM head UNION ALL SELECT * FROM tail UNION ALL SELECT * FROM backlog
    ), lanes AS MATERIALIZED (
      SELECT l.org_id, l.lane, w.id, w.url, w.secret, w.previous_secret, w.previous_secret_until, w.failing_since,
        coalesce(w.failures, CASE WHEN f.since IS NOT NULL THEN 1 ELSE 0 END) AS failures,
        CASE WHEN ${orgExists(sql, "l")}
          THEN least(${laneSlots}, ${throttleSlots(sql)}) ELSE 0 END AS slots, ${laneWorks} AS works,
        ${laneHas} = 0 AS is_new,
        w.headers, w.auth, w.signature, w.payload, w.header_style, w.retry_delays,
        coalesce(w.ordered, false) AS ordered, w.batch_max, w.max_per_second, throttle.place AS throttle_place,
        ${throttleOffset(sql)} AS throttle_offset
      FROM (SELECT DISTINCT org_id, lane FROM due) l ${endpointOfLane(sql)} ${throttleOfLane(sql)}
    ), in_lanes AS (
      -- A lane that sends in order takes only from its backlog, and when nothing of it is elsewhere: what was queued
      -- before the endpoint sent in order is backlogged first.
      SELECT *, ordered AND bool_or(NOT backlogged) OVER (PARTITION BY lane) AS waits, row_number() OVER (
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

/** Moves the deliveries without a free slot and claims the others, orgs in turn. The worker reads the CTE `claimed`. */
const taken = (sql: Sql, { claimId, leaseUntil, limit }: Claim, at: Date) =>
  // A claim changes no column of an index, so that the new version of a row stays on its page, without index entries.
  sql`
    backlogging AS (
      UPDATE pending_deliveries SET backlogged = true
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE NOT is_chosen AND NOT backlogged))
    ), taken AS (
      UPDATE pending_deliveries SET claim_id = ${claimId}, lease_until = ${date(leaseUntil)}
      WHERE ctid = ANY(ARRAY(SELECT place FROM ranked WHERE is_chosen ORDER BY org_rank, due_at LIMIT ${limit}))
      RETURNING *
    ), claimed AS (
      SELECT t.delivery_id AS id, t.org_id, w.id AS endpoint_id, t.lane, t.attempts, t.tries, t.event_id, t.bytes,
        CASE WHEN t.backlogged THEN ${microsOf(sql, "due_at")} END AS backlog_micros, w.url,
        w.secret,
        CASE WHEN w.previous_secret_until > ${at} THEN w.previous_secret END AS previous_secret,
        w.failing_since, w.failures,
        w.headers, w.auth, ${signingKeysOf(sql, sql.literal("w"), at)} AS signing_keys, w.payload, w.header_style,
        w.retry_delays, w.ordered, w.batch_max,
        t.place_in_lane::int AS place_in_lane, ${throttleDelay(sql)} AS delay_ms
      FROM (
        SELECT *, row_number() OVER (PARTITION BY lane ORDER BY due_at, delivery_id) - 1 AS place_in_lane FROM taken
      ) AS t
      JOIN lanes w USING (org_id, lane)
    ), ${throttled(sql, at)}`

/**
 * Claims due deliveries for the free slots, at the head of the queue and in the backlog. Moves the rest of the head to
 * the backlog, so that no claim reads it again and the backlog of one org costs the others nothing. `commit` is
 * evaluated in the transaction of the claim.
 *
 * Planner (locked rows are found again by place): by their key, a plan that was made for few rows would join with the
 * whole queue. Other rows are found one by one, by a lateral subquery with `LIMIT 1`.
 */
export const claimSql = (sql: Sql, claim: Claim, reads: Reads, commit: Statement.Fragment) => {
  const at = date(claim.now)
  const lanes = [...claim.lanes].map(([lane, { cap, count, works }]) => [lane, [count, cap, works ? 1 : 0]])
  const orgs = [...claim.orgs].map(([org, { bytes, count }]) => [org, [count, bytes]])
  return sql<ClaimedRow>`
    WITH state AS MATERIALIZED (
      SELECT ${JSON.stringify(Object.fromEntries(lanes))}::jsonb AS lanes,
        ${JSON.stringify(Object.fromEntries(orgs))}::jsonb AS orgs, ${commit} AS commit
    ), ${dueAtHead(sql, at, reads)}, ${dueInBacklog(sql, claim, at, reads)}, ${shares(sql, claim)},
    ${taken(sql, claim, at)}
    SELECT c.*, s.* FROM (
      SELECT (SELECT min(due_at) FROM head) AS head, (
          SELECT json_agg(json_build_array(coalesce(b.count, 0), b.first) ORDER BY l.turn)
          FROM looked l LEFT JOIN (
            SELECT lane, count(*) AS count, ${microsOf(sql, "min(due_at)")} AS first FROM backlog GROUP BY lane
          ) AS b USING (lane)
        ) AS lanes,
        (SELECT json_agg(json_build_array(org_id, lane, first)) FROM (
          SELECT org_id, lane, min(due_at) AS first FROM ranked WHERE NOT is_chosen AND NOT backlogged
          GROUP BY org_id, lane
        ) AS r) AS backlogged_lanes,
        (SELECT count(*)::int FROM ranked WHERE NOT is_chosen AND NOT backlogged) AS backlogged,
        EXISTS (SELECT FROM ranked WHERE waits) AS more,
        EXISTS (SELECT FROM ranked WHERE fits AND NOT is_chosen) AS short,
        (SELECT min(until) FROM throttles) AS throttled_until,
        (1000 * extract(epoch FROM clock_timestamp() - now()))::float8 AS took_ms
    ) s LEFT JOIN claimed c ON true`
}

/**
 * SQL: whether the org of a row exists, and does not move. Deliveries of a deleted org stay backlogged until a sweep
 * removes them.
 */
const orgExists = (sql: Sql, row: string) =>
  sql`(${sql.literal(`${row}.org_id = '' OR EXISTS (SELECT FROM orgs WHERE id = ${row}.org_id)`)})
    AND ${isSettled(sql, row)}`

/** Joins a lane `l` with its live endpoint `w`, or with the time `f` at which a callback lane began to fail. */
const endpointOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL ${liveEndpoint(sql)} w ON true
  LEFT JOIN LATERAL (SELECT failing_since AS since FROM failing_callbacks WHERE lane = l.lane) f ON w.id IS NULL`

/**
 * The CTE `head`, the head of the queue. When it is full, also the CTE `tail`: the newest due deliveries of orgs that
 * are not in the head, so that these orgs do not wait until the rows between are backlogged.
 */
const dueAtHead = (sql: Sql, at: Date, { headSince, headSize }: Reads) => {
  const columns = sql`ctid AS place, org_id, lane, delivery_id, due_at, bytes, false AS backlogged`
  const isRead = sql`due_at >= ${since(sql, headSince)} AND NOT backlogged AND due_at <= ${at}
    AND ${isUnclaimed(sql, at)}`
  return sql`
    head AS (
      SELECT ${columns} FROM pending_deliveries WHERE ${isRead}
      ORDER BY due_at LIMIT ${headSize} FOR UPDATE SKIP LOCKED
    ), tail AS (
      -- Without the condition of an index, which would be read from its beginning (ADR 37).
      SELECT ${columns} FROM pending_deliveries WHERE due_at <= ${at} AND ${isUnclaimed(sql, at)} AND ctid = ANY(ARRAY(
        SELECT place FROM (
          SELECT ctid AS place, org_id FROM pending_deliveries
          WHERE ${isRead} AND (SELECT count(*) FROM head) >= ${headSize} ORDER BY due_at DESC LIMIT ${maxHeadSize}
        ) AS newest WHERE org_id NOT IN (SELECT org_id FROM head)
      )) FOR UPDATE SKIP LOCKED
    )`
}

/** SQL: a time in microseconds, exactly. */
const microsOf = (sql: Sql, time: string) => sql.literal(`(1000000 * extract(epoch FROM ${time}))::float8`)

/** SQL: a time; `null` is the beginning. */
export const since = (sql: Sql, time: DateTime.Utc | null) =>
  sql`coalesce(${dateOrNull(time)}::timestamptz, '-infinity')`

/** SQL: whether no claim has a row. */
export const isUnclaimed = (sql: Sql, at: Date) => sql`(lease_until IS NULL OR lease_until <= ${at})`

/**
 * The first deliveries of a lane `l` of the org `o` that sends in order, as many as are free without a gap. So the
 * first of the lane is always among them: while another claim has it, or it waits for its retry, none is free. `due_at`
 * is only the order.
 */
const headInOrder = (sql: Sql, at: Date) => sql`
  SELECT place, org_id, lane, delivery_id, due_at, bytes, true AS backlogged FROM (
    SELECT locked.*, locked.n = row_number() OVER (ORDER BY locked.n) AS has_no_gap FROM (
      SELECT place, row_number() OVER (ORDER BY due_at, delivery_id) AS n FROM (
        SELECT ctid AS place, due_at, delivery_id FROM pending_deliveries p
        WHERE l.ordered AND p.backlogged AND (${backlogLane(sql)}) = (o.org_id, l.lane) AND p.due_at >= l.since
        ORDER BY p.due_at, p.delivery_id LIMIT l.slots
      ) AS head
    ) AS numbered CROSS JOIN LATERAL (
      SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, numbered.n FROM pending_deliveries p
      WHERE p.ctid = numbered.place AND ${isUnclaimed(sql, at)} FOR UPDATE SKIP LOCKED
    ) AS locked
  ) AS head WHERE has_no_gap`

/**
 * The CTE `backlog`: backlogged deliveries, orgs in turn, and within an org its lanes in turn. A delivery is backlogged
 * when it is due, so its `due_at` is only the order: it stays due when a clock is set back.
 */
const dueInBacklog = (sql: Sql, claim: Claim, at: Date, { lanes, orgs }: Reads) => {
  const { laneSlots } = claimSlots(sql, claim)
  // open_orgs: the orgs that have free slots, with their shares of the claim.
  // looked: the lanes of these orgs that have a backlog.
  // backlog: the rows that fit into each lane. It reads no others, because a row that is read is locked.
  return sql`
    open_orgs AS MATERIALIZED (
      SELECT org_id, share FROM unnest(
        ${texts(orgs.map(({ orgId }) => orgId))}, ${integers(orgs.map(({ share }) => share))}
      ) AS o (org_id, share) WHERE ${orgExists(sql, "o")}
    ), looked AS MATERIALIZED (
      SELECT org_id, lane, coalesce('epoch'::timestamptz + micros * interval '1 microsecond', '-infinity') AS since,
        coalesce(id, '') AS since_id, turn
      FROM unnest(
        ${texts(lanes.map(({ orgId }) => orgId))}, ${texts(lanes.map(({ lane }) => lane))},
        ${floats(lanes.map(({ since }) => since?.micros ?? null))},
        ${texts(lanes.map(({ since }) => since?.id ?? null))}
      ) WITH ORDINALITY AS l (org_id, lane, micros, id, turn)
    ), backlog AS MATERIALIZED (
      SELECT head.* FROM open_orgs o CROSS JOIN LATERAL (
        SELECT head.* FROM (
          SELECT l.lane, l.since, l.since_id, ${laneSlots} AS slots, coalesce(w.ordered, false) AS ordered
          FROM (SELECT * FROM looked WHERE org_id = o.org_id ORDER BY turn) l
          ${endpointOfLane(sql)} WHERE ${laneSlots} > 0
        ) AS l
        CROSS JOIN LATERAL (
          SELECT * FROM (
            SELECT ctid AS place, org_id, lane, delivery_id, due_at, bytes, true AS backlogged FROM pending_deliveries p
            WHERE NOT l.ordered AND p.backlogged AND (${backlogLane(sql)}) = (o.org_id, l.lane)
              AND (p.due_at, p.delivery_id) >= (l.since, l.since_id) AND ${isUnclaimed(sql, at)}
            ORDER BY p.due_at, p.delivery_id LIMIT l.slots FOR UPDATE SKIP LOCKED
          ) AS in_any_order
          UNION ALL SELECT * FROM (${headInOrder(sql, at)}) AS in_order
        ) AS head
        LIMIT o.share
      ) AS head
    )`
}

/** A row that a claim returns: one for each delivery, and at least one, for the columns from `head` on. */
interface ClaimedRow {
  /** `null` in the only row of a claim without deliveries. */
  readonly id: string | null
  readonly org_id: string
  readonly endpoint_id: string | null
  readonly lane: string
  readonly attempts: number
  readonly tries: number
  readonly event_id: string
  readonly bytes: number
  /** The `due_at` of a delivery of the backlog, in microseconds; `null` at the head. */
  readonly backlog_micros: number | null
  /** These two are `null` for a callback. */
  readonly url: string | null
  readonly secret: string | null
  readonly previous_secret: string | null
  readonly failing_since: Date | null
  readonly failures: number
  readonly headers: string | null
  readonly auth: string | null
  readonly signing_keys: ReadonlyArray<string>
  /** These two are `null` for a callback. */
  readonly payload: typeof PayloadKind.Type | null
  readonly header_style: typeof HeaderNames.Type | null
  readonly batch_max: number | null
  readonly retry_delays: ReadonlyArray<number> | null
  readonly ordered: boolean
  /** The place among the claimed deliveries of its lane, from 0. */
  readonly place_in_lane: number
  /**
   * Milliseconds from the beginning of the claim, by the database's clock, to the attempt; `null` without a limit per
   * second.
   */
  readonly delay_ms: number | null
  /** When a lane may send again that waits for its limit per second. */
  readonly throttled_until: Date | null
  /** Milliseconds since the beginning of the claim, by the database's clock. */
  readonly took_ms: number
  /** The first `due_at` that was read at the head. */
  readonly head: Date | null
  readonly lanes: ReadonlyArray<readonly [count: number, firstMicros: number | null]> | null
  /** Deliveries at the head that the claim backlogged, and their lanes. */
  readonly backlogged: number
  readonly backlogged_lanes: Found["backloggedLanes"] | null
  /** Whether deliveries of a lane that sends in order were backlogged, so that the next claim may take them. */
  readonly more: boolean
  /** Whether due deliveries were left because their org had no share. */
  readonly short: boolean
}

/**
 * For each lane that a claim read: how many deliveries of its backlog fitted, and where the next claim begins: at the
 * last that was taken; if one was not taken, or the lane sends in order, a little before the first.
 */
export const lanesFound = (
  rows: ReadonlyArray<Pick<ClaimedRow, "id" | "lane" | "ordered" | "backlog_micros" | "lanes">>,
  reads: Reads,
): Found["lanes"] => {
  const taken = new Map<string, { count: number; last: Place; ordered: boolean }>()
  for (const { backlog_micros: micros, id, lane, ordered } of rows) {
    if (id === null || micros === null) continue
    const { count, last } = taken.get(lane) ?? { count: 0, last: { micros, id } }
    taken.set(lane, { count: count + 1, last: isBefore(last, { micros, id }) ? { micros, id } : last, ordered })
  }
  return (rows[0]!.lanes ?? []).map(([count, firstMicros], n) => {
    const of = taken.get(reads.lanes[n]!.lane)
    if (of?.count === count && !of.ordered) return [count, of.last]
    return [count, firstMicros === null ? null : placeBefore(firstMicros / 1000)]
  })
}

/** What a claim sends of an event. */
interface ClaimedEvent {
  readonly id: string
  readonly type: string
  readonly body: string
  readonly callback_url: string | null
  readonly callback_secret: string | null
  readonly callback_secret_owner: string | null
}

/**
 * The events of a claim. A statement of its own: PostgreSQL 18 prunes partitions by wrong values, or crashes, in a
 * statement that has found a locked row changed (ADR 55).
 */
export const eventsOf = (sql: Sql, rows: ReadonlyArray<ClaimedRow>) => {
  const ids = new Set(rows.flatMap(({ event_id, id }) => (id === null ? [] : [event_id])))
  return ids.size === 0
    ? Effect.succeed([])
    : sql<ClaimedEvent>`
        SELECT e.* FROM unnest(${texts(ids)}) AS claimed (id) CROSS JOIN LATERAL (
          SELECT id, type, body, callback_url, callback_secret, callback_secret_owner FROM events
            WHERE id = claimed.id LIMIT 1
        ) AS e`
}

/**
 * Reads the rows of a claim as deliveries: the first of each lane, then the second of each.
 *
 * @param elapsed milliseconds since the answer to the claim, which its delays begin with
 */
export const toClaimed = (
  rows: ReadonlyArray<ClaimedRow>,
  found: ReadonlyArray<ClaimedEvent>,
  claimId: string,
  elapsed: number,
): ReadonlyArray<ClaimedDelivery> => {
  const events = new Map(found.map((event) => [event.id, event]))
  return rows
    .flatMap((row) => {
      const event = events.get(row.event_id)
      return row.id === null || event === undefined ? [] : [{ ...row, id: row.id, ofEvent: event }]
    })
    .toSorted((a, b) => a.place_in_lane - b.place_in_lane || (a.id < b.id ? -1 : 1))
    .map(({ ofEvent, ...row }) => ({
      deliveryId: row.id,
      claimId,
      orgId: row.org_id,
      endpointId: row.endpoint_id,
      lane: row.lane,
      url: row.url ?? ofEvent.callback_url!,
      secrets: [row.secret ?? ofEvent.callback_secret, row.previous_secret]
        .filter((stored) => stored !== null)
        .map((stored) => ({ stored, owner: row.endpoint_id ?? ofEvent.callback_secret_owner! })),
      signingKeys: row.signing_keys.map((stored) => ({ stored, owner: row.org_id })),
      headers: row.headers === null ? null : { stored: row.headers, owner: row.endpoint_id! },
      auth: row.auth === null ? null : { stored: row.auth, owner: row.endpoint_id! },
      retryDelays: row.retry_delays,
      ordered: row.ordered,
      delayMillis: row.delay_ms === null ? null : row.delay_ms - row.took_ms - elapsed,
      eventId: row.event_id,
      event: ofEvent.type,
      body: sentBody(row.payload ?? "envelope", ofEvent.body),
      bytes: row.bytes,
      headerNames: row.header_style ?? "webhook",
      batchMax: row.batch_max,
      attempts: row.attempts,
      attemptsSinceResend: row.tries,
      failingSince: row.failing_since === null ? null : DateTime.fromDateUnsafe(row.failing_since),
      failures: row.failures,
    }))
}

/**
 * SQL: the free slots of lanes and orgs in a claim. The row `state` says what they have in flight in this process. A
 * lane is the row `l` with its endpoint `w` and its failing callback `f`. An org is the name of a column with its id.
 */
const claimSlots = (sql: SqlClient.SqlClient, claim: Claim) => {
  // A look-up by key, not a join: a join would read every lane with a backlog before the first delivery.
  const laneState = sql`(SELECT lanes FROM state) -> coalesce(w.id, l.lane)`
  const orgState = (org: string) => sql`(SELECT orgs FROM state) -> ${sql.literal(org)}`
  const [free, reserve] = [sql`${claim.free.count}::int`, sql`${claim.reserve}::float8`]
  const laneHas = sql`coalesce((${laneState} ->> 0)::int, 0)`
  const orgHas = (org: string) => sql`coalesce((${orgState(org)} ->> 0)::int, 0)`
  return {
    laneHas,
    /** Whether the lane's last attempt in this process succeeded. */
    laneWorks: sql`coalesce((${laneState} ->> 2)::int, 0) = 1`,
    /**
     * Free slots of the lane: none when its endpoint is deleted or inactive, and none in an ordered lane that has
     * deliveries in flight in this process.
     */
    laneSlots: sql`
      (CASE WHEN w.id IS NULL AND NOT ${isCallbackLane(sql)} THEN 0
        WHEN w.ordered THEN CASE WHEN ${laneHas} > 0 THEN 0 WHEN w.failing_since IS NOT NULL THEN 1
          ELSE greatest(${claim.laneCap}::int, ${orderedBatchSize}::int) END
        WHEN w.failing_since IS NULL AND f.since IS NULL THEN
          coalesce((${laneState} ->> 1)::int, ${claim.laneCap}) + coalesce(w.batch_max, 0)
        ELSE 1 END - ${laneHas})`,
    /** `slotsLeft` of the org, without its bytes. Rounded up, so that the last slot is used. */
    orgSlots: (org: string) => sql`ceil((${free} - ${reserve} * ${orgHas(org)}) / (1 + ${reserve}))::int`,
    /** Slots that the org may take until it has three quarters of its share. */
    commonSlots: (org: string) =>
      sql`(ceil((${free} + ${orgHas(org)}) / (1 + ${reserve}) * 0.75)::int - ${orgHas(org)})`,
    /** Bytes that the org may take so that `reserve` times its new total stays free. */
    freeBytes: (org: string) => sql`
      ((${claim.free.bytes}::bigint - ${reserve} * coalesce((${orgState(org)} ->> 1)::bigint, 0)) / (1 + ${reserve}))`,
  }
}

/**
 * SQL of the limit per second. `endpoint_throttles` has the time of the next attempt of an endpoint, over all replicas.
 * A claim locks the row, assigns the times of the deliveries that it takes, one after the other, and writes the time of
 * the next. The times are those of the database's clock, which all replicas share; a replica gets each as a number of
 * milliseconds from the claim's answer on. The lane is `l`, its endpoint `w`.
 */

const horizonSeconds = throttleHorizonMillis / 1000

/** Joins the lane with its throttle, if its endpoint has a limit. No row while another claim has it. */
const throttleOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL (
    SELECT ctid AS place, extract(epoch FROM next_at - now())::float8 AS ahead FROM endpoint_throttles
    WHERE w.max_per_second IS NOT NULL AND org_id = l.org_id AND endpoint_id = w.id FOR UPDATE SKIP LOCKED
  ) AS throttle ON true`

/**
 * Seconds until the next attempt. No claim writes a time further ahead than the horizon and the step of one attempt a
 * second: such a time is of before the database's clock was set back, and the next attempt is at the horizon.
 */
const throttleOffset = (sql: Sql) => sql`
  CASE WHEN throttle.ahead > ${horizonSeconds}::float8 + ${throttleMargin}::float8 THEN ${horizonSeconds}::float8
    ELSE greatest(0, throttle.ahead) END`

/** Attempts that the limit leaves until the horizon; `NULL` without a limit. */
const throttleSlots = (sql: Sql) => sql`
  CASE WHEN w.max_per_second IS NULL THEN NULL WHEN throttle.place IS NULL THEN 0 ELSE greatest(0, 1 + floor(
    (${horizonSeconds}::float8 - ${throttleOffset(sql)}) * w.max_per_second / ${throttleMargin}::float8))::int END`

/** Milliseconds from the claim to the attempt of a taken row `t` of the lane `w`; `NULL` without a limit. */
const throttleDelay = (sql: Sql) => sql`
  CASE WHEN w.max_per_second IS NOT NULL
    THEN (1000 * (w.throttle_offset + t.place_in_lane * ${throttleMargin}::float8 / w.max_per_second))::float8 END`

/**
 * The CTEs `throttles` and `throttled`, which write the times of the next attempts. `until` is when, by the replica's
 * clock `at`, the next claim can take deliveries of lanes that wait for their limit.
 */
const throttled = (sql: Sql, at: Date) => sql`
  throttles AS MATERIALIZED (
    SELECT l.throttle_place AS place, now() + interval '1 second'
        * (l.throttle_offset + coalesce(t.n, 0) * ${throttleMargin}::float8 / l.max_per_second) AS next_at,
      CASE WHEN d.n > coalesce(t.n, 0) THEN ${at}::timestamptz + interval '1 second' * greatest(0.001,
        coalesce(l.throttle_offset + coalesce(t.n, 0) * ${throttleMargin}::float8 / l.max_per_second,
            ${horizonSeconds}::float8)
          - ${horizonSeconds / 2}::float8) END AS until,
      coalesce(t.n, 0) AS taken
    FROM lanes l
    JOIN (SELECT lane, count(*) AS n FROM due GROUP BY lane) AS d USING (lane)
    LEFT JOIN (SELECT lane, count(*) AS n FROM taken GROUP BY lane) AS t USING (lane)
    WHERE l.max_per_second IS NOT NULL
  ), throttled AS (
    UPDATE endpoint_throttles p SET next_at = throttles.next_at FROM throttles
    WHERE p.ctid = ANY(ARRAY(SELECT place FROM throttles WHERE taken > 0)) AND p.ctid = throttles.place
  )`
