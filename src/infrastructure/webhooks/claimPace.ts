import type { SqlClient } from "effect/sql"
import { paceHorizonMillis, paceMargin } from "../../domain/webhooks/pace.ts"

/**
 * SQL of the limit per second. `endpoint_paces` has the time of the next attempt of an endpoint, over all replicas. A claim
 * locks the row, assigns the times of the deliveries that it takes, one after the other, and writes the time of the next. The
 * lane is `l`, its endpoint `w`.
 */
type Sql = SqlClient.SqlClient

const horizonSeconds = paceHorizonMillis / 1000

/** Joins the lane with its pace, if its endpoint has a limit. No row while another claim has it. */
export const paceOfLane = (sql: Sql) => sql`
  LEFT JOIN LATERAL (
    SELECT ctid AS place, next_at FROM endpoint_paces
    WHERE w.max_per_second IS NOT NULL AND org_id = l.org_id AND endpoint_id = w.id FOR UPDATE SKIP LOCKED
  ) AS pace ON true`

/** Seconds until the next attempt. */
export const paceOffset = (sql: Sql, at: Date) =>
  sql`greatest(0, extract(epoch FROM pace.next_at - ${at}::timestamptz))::float8`

/** Attempts that the limit leaves until the horizon; `NULL` without a limit. */
export const paceSlots = (sql: Sql, at: Date) => sql`
  CASE WHEN w.max_per_second IS NULL THEN NULL WHEN pace.place IS NULL THEN 0 ELSE greatest(0, 1 + floor(
    (${horizonSeconds}::float8 - ${paceOffset(sql, at)}) * w.max_per_second / ${paceMargin}::float8))::int END`

/** Milliseconds until the attempt of a taken row `t` of the lane `w`; `NULL` without a limit. */
export const paceDelay = (sql: Sql) => sql`
  CASE WHEN w.max_per_second IS NOT NULL
    THEN (1000 * (w.pace_offset + t.place_in_lane * ${paceMargin}::float8 / w.max_per_second))::float8 END`

/**
 * The CTEs `paces` and `paced`, which write the times of the next attempts. `until` is when the next claim
 * can take deliveries of lanes that wait for their limit.
 */
export const paced = (sql: Sql, at: Date) => sql`
  paces AS MATERIALIZED (
    SELECT l.pace_place AS place, ${at}::timestamptz + interval '1 second'
        * (l.pace_offset + coalesce(t.n, 0) * ${paceMargin}::float8 / l.max_per_second) AS next_at,
      CASE WHEN d.n > coalesce(t.n, 0) THEN ${at}::timestamptz + interval '1 second' * greatest(0.001,
        coalesce(l.pace_offset + coalesce(t.n, 0) * ${paceMargin}::float8 / l.max_per_second, ${horizonSeconds}::float8)
          - ${horizonSeconds / 2}::float8) END AS until,
      coalesce(t.n, 0) AS taken
    FROM lanes l
    JOIN (SELECT lane, count(*) AS n FROM due GROUP BY lane) AS d USING (lane)
    LEFT JOIN (SELECT lane, count(*) AS n FROM taken GROUP BY lane) AS t USING (lane)
    WHERE l.max_per_second IS NOT NULL
  ), paced AS (
    UPDATE endpoint_paces p SET next_at = paces.next_at FROM paces
    WHERE p.ctid = ANY(ARRAY(SELECT place FROM paces WHERE taken > 0)) AND p.ctid = paces.place
  )`
