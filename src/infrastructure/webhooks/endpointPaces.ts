import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { date } from "../database/fragments.ts"

/** Lets an endpoint with a limit per second send from now on. Keeps the time of an endpoint that has one. */
export const setPace = (sql: SqlClient.SqlClient, orgId: string, endpointId: string, now: DateTime.Utc) =>
  Effect.asVoid(sql`
    INSERT INTO endpoint_paces (org_id, endpoint_id, next_at) VALUES (${orgId}, ${endpointId}, ${date(now)})
    ON CONFLICT DO NOTHING`)

/** Removes the pace of a deleted endpoint. */
export const removePace = (sql: SqlClient.SqlClient, orgId: string, endpointId: string) =>
  Effect.asVoid(sql`DELETE FROM endpoint_paces WHERE org_id = ${orgId} AND endpoint_id = ${endpointId}`)
