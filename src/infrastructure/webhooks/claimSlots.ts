import type { SqlClient } from "effect/sql"
import type { Claim } from "../../domain/webhooks/DeliveryQueue.ts"
import { orderedBatchSize } from "../../domain/webhooks/slotState.ts"
import { isCallbackLane } from "./laneSql.ts"

/**
 * SQL: the free slots of lanes and orgs in a claim. The row `state` says what they have in flight in this process. A lane is the
 * row `l` with its endpoint `w` and its failing callback `f`. An org is the name of a column with its id.
 */
export const claimSlots = (sql: SqlClient.SqlClient, claim: Claim) => {
  // A look-up by key, not a join: a join would read every lane with a backlog before the first delivery.
  const laneState = sql`(SELECT lanes FROM state) -> coalesce(w.id, l.lane)`
  const orgState = (org: string) => sql`(SELECT orgs FROM state) -> ${sql.literal(org)}`
  const [free, reserve] = [sql`${claim.free.count}::int`, sql`${claim.reserve}::float8`]
  const laneHas = sql`coalesce((${laneState} ->> 0)::int, 0)`
  const orgHas = (org: string) => sql`coalesce((${orgState(org)} ->> 0)::int, 0)`
  return {
    laneHas,
    orgHas,
    /** Whether the lane's last attempt in this process succeeded. */
    laneWorks: sql`coalesce((${laneState} ->> 2)::int, 0) = 1`,
    /**
     * Free slots of the lane: none when its endpoint is deleted or inactive, and none in an ordered lane that has deliveries in
     * flight in this process.
     */
    laneSlots: sql`
      (CASE WHEN w.id IS NULL AND NOT ${isCallbackLane(sql)} THEN 0
        WHEN w.ordered THEN CASE WHEN ${laneHas} > 0 THEN 0 WHEN w.failing_since IS NOT NULL THEN 1
          ELSE greatest(${claim.laneCap}::int, ${orderedBatchSize}::int) END
        WHEN w.failing_since IS NULL AND f.since IS NULL THEN coalesce((${laneState} ->> 1)::int, ${claim.laneCap})
        ELSE 1 END - ${laneHas})`,
    /** Slots that the org may take so that `reserve` times its new total stays free. Rounded up, so that the last slot is used. */
    orgSlots: (org: string) => sql`ceil((${free} - ${reserve} * ${orgHas(org)}) / (1 + ${reserve}))::int`,
    /** Slots that the org may take until it has three quarters of its share. */
    commonSlots: (org: string) =>
      sql`(ceil((${free} + ${orgHas(org)}) / (1 + ${reserve}) * 0.75)::int - ${orgHas(org)})`,
    /** Bytes that the org may take so that `reserve` times its new total stays free. */
    freeBytes: (org: string) => sql`
      ((${claim.free.bytes}::bigint - ${reserve} * coalesce((${orgState(org)} ->> 1)::bigint, 0)) / (1 + ${reserve}))`,
  }
}
