import type { SqlClient, Statement } from "effect/sql"
import type { DeliveryFilter } from "../../domain/webhooks/DeliveryLog.ts"
import type { Page } from "../../domain/Page.ts"
import { afterCursor } from "../database/fragments.ts"

/**
 * How many deliveries a list looks at for one page. What is asked for may be rare among millions that are not, or about to
 * be swept: then the page is short, and its cursor goes on.
 */
export const maxLooked = 10_000

/**
 * The ids among which a list finds its deliveries, newest first, as the start of a SELECT without its LIMIT. They are read
 * from an index that has the state that is asked for, where there is one.
 */
export const sourceOf = (
  sql: SqlClient.SqlClient,
  orgId: string,
  { job_id, state, webhook_endpoint_id: endpoint }: DeliveryFilter,
  page: Page,
) => {
  const after = afterCursor(sql, page, "newest")
  const ofEndpoint = endpoint === undefined ? sql.literal("true") : sql`endpoint_id = ${endpoint}`
  const rows = (condition: Statement.Fragment) => sql`
    SELECT id FROM deliveries WHERE org_id = ${orgId} AND ${ofEndpoint} AND ${condition} AND ${after} ORDER BY id DESC`
  if (job_id !== undefined) return rows(sql`job_id = ${job_id}`)
  if (state === undefined || state === "delivered") return rows(sql`true`)

  /** The newest of each of some lanes; what they come from has a column `lane`. */
  const pendingIn = (lanes: Statement.Fragment) => sql`
    (SELECT p.id FROM (${lanes}) AS l CROSS JOIN LATERAL (
      SELECT id FROM (SELECT lane, delivery_id AS id FROM pending_deliveries) AS p WHERE p.lane = l.lane AND ${after}
      ORDER BY id DESC LIMIT ${page.limit + 1}
    ) AS p)`
  // Canceled, or recovered since, and not swept yet.
  const ended = sql`SELECT lane FROM sweeps WHERE org_id = ${orgId} AND kind = 'cancel' AND ${ofEndpoint} LIMIT 1000`
  if (state === "pending") {
    const live = sql`SELECT coalesce(lane, id) AS lane FROM webhook_endpoints WHERE org_id = ${orgId}
      AND ${endpoint === undefined ? sql.literal("true") : sql`id = ${endpoint}`}`
    // The lanes of callbacks, one after the other: a skip scan.
    const callbacks = sql`
      WITH RECURSIVE lanes AS (
        SELECT (${orgId}::text || ' ') COLLATE "C" AS lane
        UNION ALL
        SELECT next.lane FROM lanes before CROSS JOIN LATERAL (
          SELECT lane FROM pending_deliveries p WHERE p.lane > before.lane AND p.lane < ${orgId}::text || '!'
          ORDER BY p.lane LIMIT 1
        ) AS next
      ) SELECT lane FROM lanes LIMIT 1000`
    const recovering = sql`
      (SELECT d.id FROM (
        SELECT * FROM sweeps WHERE org_id = ${orgId} AND kind = 'recover' AND ${ofEndpoint} ORDER BY id LIMIT 1000
      ) AS s CROSS JOIN LATERAL (
        SELECT id FROM deliveries WHERE endpoint_id = s.endpoint_id AND unsuccessful IS NOT NULL AND id > s.done_to
          AND created_at >= s.since AND (s.until IS NULL OR created_at < s.until) AND ${after}
        ORDER BY id DESC LIMIT ${page.limit + 1}
      ) AS d)`
    return sql`SELECT id FROM (
      ${pendingIn(live)} ${endpoint === undefined ? sql`UNION ALL ${pendingIn(callbacks)}` : sql.literal("")}
      UNION ${pendingIn(ended)} UNION ${recovering}
    ) AS candidates ORDER BY id DESC`
  }
  const unsuccessful = rows(sql`unsuccessful = ${state}`)
  if (state !== "canceled") return unsuccessful
  return sql`SELECT id FROM (
    (${unsuccessful} LIMIT ${maxLooked}) UNION ${pendingIn(ended)}
  ) AS candidates ORDER BY id DESC`
}
