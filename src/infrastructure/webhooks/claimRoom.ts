import type { SqlClient } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { isCallbackLane } from "./lanes.ts"

/**
 * SQL of the room that a claim leaves to lanes and orgs. It reads what they have here from the row `state`. A lane is the row
 * `l`, its endpoint `w`, and its failing callback `f`; an org is the name of a column with its id.
 */
export const claimRoom = (sql: SqlClient.SqlClient, claim: Claim) => {
  // Looked up by name, not joined: a join would read every lane with a backlog before the first delivery is taken.
  const laneState = sql`(SELECT lanes FROM state) -> coalesce(w.id, l.lane)`
  const orgState = (org: string) => sql`(SELECT orgs FROM state) -> ${sql.literal(org)}`
  const [free, reserve] = [sql`${claim.free.count}::int`, sql`${claim.reserve}::float8`]
  const laneHas = sql`coalesce((${laneState} ->> 0)::int, 0)`
  const orgHas = (org: string) => sql`coalesce((${orgState(org)} ->> 0)::int, 0)`
  return {
    laneHas,
    orgHas,
    /** Whether the lane's last attempt here succeeded. */
    laneWorks: sql`coalesce((${laneState} ->> 2)::int, 0) = 1`,
    /** How many deliveries the lane has room for: none when its endpoint is deleted or inactive. */
    laneRoom: sql`
      (CASE WHEN w.id IS NULL AND NOT ${isCallbackLane(sql)} THEN 0
        WHEN w.failing_since IS NULL AND f.since IS NULL THEN coalesce((${laneState} ->> 1)::int, ${claim.laneCap})
        ELSE 1 END - ${laneHas})`,
    /** As many slots that `reserve` times what the org then has stays free. Rounded up, so that the last slot can be used. */
    orgRoom: (org: string) => sql`ceil((${free} - ${reserve} * ${orgHas(org)}) / (1 + ${reserve}))::int`,
    /** The part of `orgRoom` until the org has three quarters of what it may have. */
    commonRoom: (org: string) =>
      sql`(ceil((${free} + ${orgHas(org)}) / (1 + ${reserve}) * 0.75)::int - ${orgHas(org)})`,
    /** As many bytes that `reserve` times what the org then has stays free. */
    byteRoom: (org: string) => sql`
      ((${claim.free.bytes}::bigint - ${reserve} * coalesce((${orgState(org)} ->> 1)::bigint, 0)) / (1 + ${reserve}))`,
  }
}
