import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { DeliveryFilter } from "../../domain/webhooks/DeliveryLog.ts"
import type { Page } from "../../domain/Page.ts"
import { afterCursor, date, isOfOrg } from "../database/fragments.ts"
import { decodeDeliveries, deliveryColumns, deliveryJoins } from "./deliveryRows.ts"
import { idAfter, idBefore } from "./idTimes.ts"
import { stateNow } from "./laneSql.ts"

type Sql = SqlClient.SqlClient

/**
 * Deliveries that one page reads at most. Matches may be rare among millions of deliveries, or about to be swept: the page
 * is then short, and its cursor continues after the last delivery that was read.
 */
const maxReadPerPage = 10_000
/** Lanes or sweeps of an org that one page reads at most. */
const maxSources = 1_000

/** The newest pending deliveries of each of some lanes. `lanes` is a SELECT of a column `lane`. */
const pendingIn = (sql: Sql, lanes: Statement.Fragment, page: Page) => sql`
  (SELECT p.id FROM (${lanes}) AS l CROSS JOIN LATERAL (
    SELECT id FROM (SELECT lane, delivery_id AS id FROM pending_deliveries) AS p
    WHERE p.lane = l.lane AND ${afterCursor(sql, page, "newest")}
    ORDER BY id DESC LIMIT ${page.limit + 1}
  ) AS p)`

/** The callback lanes of an org. Reads one index entry for each. */
const callbackLanes = (sql: Sql, orgId: string) => sql`
  WITH RECURSIVE lanes AS (
    SELECT (${orgId}::text || ' ') COLLATE "C" AS lane
    UNION ALL
    SELECT next.lane FROM lanes before CROSS JOIN LATERAL (
      SELECT lane FROM pending_deliveries p WHERE p.lane > before.lane AND p.lane < ${orgId}::text || '!'
      ORDER BY p.lane LIMIT 1
    ) AS next
  ) SELECT lane FROM lanes LIMIT ${sql.literal(`${maxSources}`)}`

/**
 * The ids that a list filters, newest first: the start of a SELECT without its LIMIT. Reads an index on the wanted state
 * where there is one.
 */
const candidates = (
  sql: Sql,
  orgId: string,
  { event_id, job_id, since, state, until, webhook_endpoint_id: endpoint }: DeliveryFilter,
  page: Page,
) => {
  const all = sql.literal("true")
  const limit = sql.literal(`LIMIT ${maxSources}`)
  // Bounds of the ids, so that a range of time reads no index entries of other times.
  const [from, to] = [
    since === undefined ? all : sql`id > ${idBefore(since)}`,
    until === undefined ? all : sql`id < ${idAfter(until)}`,
  ]
  const after = sql`${afterCursor(sql, page, "newest")} AND ${from} AND ${to}`
  const ofEndpoint = endpoint === undefined ? all : sql`endpoint_id = ${endpoint}`
  const rows = (condition: Statement.Fragment) => sql`
    SELECT id FROM deliveries WHERE org_id = ${orgId} AND ${ofEndpoint} AND ${condition} AND ${after} ORDER BY id DESC`
  if (job_id !== undefined) return rows(sql`job_id = ${job_id}`)
  if (event_id !== undefined) {
    // The deliveries of a job's event are found by the job.
    const job = sql`(SELECT job_id FROM events WHERE id = ${event_id} AND ${isOfOrg(sql, orgId)})`
    return sql`
      SELECT id FROM (
        SELECT id, endpoint_id FROM deliveries WHERE job_id = ${job} AND org_id = ${orgId}
        UNION ALL
        SELECT id, endpoint_id FROM deliveries WHERE event_id = ${event_id} AND job_id IS NULL AND org_id = ${orgId}
      ) AS of_event WHERE ${ofEndpoint} AND ${after} ORDER BY id DESC`
  }
  if (state === undefined || state === "delivered") return rows(all)

  // Deliveries in ended lanes: canceled or recovered, but not swept yet.
  const endedLanes = sql`SELECT lane FROM sweeps WHERE org_id = ${orgId} AND kind = 'cancel' AND ${ofEndpoint} ${limit}`
  const inEndedLanes = pendingIn(sql, endedLanes, page)
  if (state === "pending") {
    const liveLanes = sql`
      SELECT coalesce(lane, id) AS lane FROM webhook_endpoints WHERE org_id = ${orgId}
      AND ${endpoint === undefined ? all : sql`id = ${endpoint}`}`
    const inCallbackLanes =
      endpoint === undefined ? sql`UNION ALL ${pendingIn(sql, callbackLanes(sql, orgId), page)}` : sql.literal("")
    const recovering = sql`
      (SELECT d.id FROM (
        SELECT * FROM sweeps WHERE org_id = ${orgId} AND kind = 'recover' AND ${ofEndpoint} ORDER BY id ${limit}
      ) AS s CROSS JOIN LATERAL (
        SELECT id FROM deliveries WHERE endpoint_id = s.endpoint_id AND unsuccessful IS NOT NULL AND id > s.done_to
          AND created_at >= s.since AND (s.until IS NULL OR created_at < s.until) AND ${after}
        ORDER BY id DESC LIMIT ${page.limit + 1}
      ) AS d)`
    return sql`
      SELECT id FROM (
        ${pendingIn(sql, liveLanes, page)} ${inCallbackLanes} UNION ${inEndedLanes} UNION ${recovering}
      ) AS candidates ORDER BY id DESC`
  }
  const unsuccessful = rows(sql`unsuccessful = ${state}`)
  if (state !== "canceled") return unsuccessful
  return sql`
    SELECT id FROM ((${unsuccessful} LIMIT ${maxReadPerPage}) UNION ${inEndedLanes}) AS candidates ORDER BY id DESC`
}

/** Lists an org's deliveries, newest first. */
export const listDeliveries = Effect.fnUntraced(function* (
  sql: Sql,
  orgId: string,
  filter: DeliveryFilter,
  page: Page,
) {
  const state = filter.state ?? null
  const all = sql.literal("true")
  // Also of a list by job or endpoint, where `source` knows only one condition.
  const matches = [
    filter.event_id === undefined ? all : sql`d.event_id = ${filter.event_id}`,
    filter.event_type === undefined ? all : sql`e.type = ${filter.event_type}`,
    filter.since === undefined ? all : sql`d.created_at >= ${date(filter.since)}`,
    filter.until === undefined ? all : sql`d.created_at < ${date(filter.until)}`,
  ]
  const source = candidates(sql, orgId, filter, page)
  const deliveries = yield* sql`
    SELECT ${deliveryColumns(sql)} FROM (${source} LIMIT ${maxReadPerPage}) AS looked
    CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = looked.id AND ${isOfOrg(sql, orgId)} OFFSET 0) AS d
    ${deliveryJoins(sql)}
    WHERE (${state}::text IS NULL OR ${stateNow(sql)} = ${state}) AND ${sql.and(matches)}
    ORDER BY looked.id DESC LIMIT ${page.limit + 1}`.pipe(decodeDeliveries)
  if (deliveries.length > page.limit) return { deliveries, scannedTo: null }
  const [last] = yield* sql<{ id: string }>`
    SELECT id FROM (${source} LIMIT ${maxReadPerPage}) AS looked OFFSET ${maxReadPerPage - 1}`
  return { deliveries, scannedTo: last?.id ?? null }
})
