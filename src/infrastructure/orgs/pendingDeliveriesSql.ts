import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DefaultLimits } from "../../domain/orgs/OrgLimits.ts"
import { PendingDeliveries } from "../../domain/webhooks/PendingLimit.ts"
import { afterCallbacks, afterOrg } from "../queue/lanes.ts"
import { makeResting } from "../background.ts"
import { OrgUsage } from "./OrgUsage.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { texts } from "../database/fragments.ts"
import { countBatchSize, countInBatches, limitOf } from "./enforceLimits.ts"

/** Pending deliveries that one statement counts of each org; an org with as many is counted lane by lane. */
export const pendingSample = 1_000
/** Pending deliveries that one statement counts of each lane; a lane with as many is counted batch by batch. */
const laneSample = 100
/** Orgs that one check counts. */
const maxOrgsPerCheck = 200

const bounded = orUnavailableWithin("sweep")

/** SQL: the number of pending deliveries of the row `org`, up to `pendingSample`. */
export const samplePending = (sql: SqlClient.SqlClient) =>
  sql.literal(`(
    SELECT count(*) FROM (
      SELECT 1 FROM webhook_endpoints w CROSS JOIN LATERAL (
        SELECT 1 FROM pending_deliveries WHERE org_id = org.id AND lane = w.lane LIMIT ${pendingSample}
      ) AS p WHERE w.org_id = org.id
      UNION ALL
      SELECT 1 FROM pending_deliveries WHERE org_id = org.id AND lane > org.id || '${afterOrg}'
        AND lane < org.id || '${afterCallbacks}'
      LIMIT ${pendingSample}
    ) AS counted
  )`)

/** Counts an org's pending deliveries lane by lane, up to about `upTo`, and finds the endpoint that has the most. */
export const countPending = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, orgId: string, upTo: number) {
  const batch = sql.literal(`${countBatchSize}`)
  const ofLane = (lane: string) => (after: string | undefined) =>
    Effect.map(
      sql<{ n: number; last: string }>`
        SELECT count(*)::int AS n, max(delivery_id) AS last FROM (
          SELECT delivery_id FROM pending_deliveries WHERE org_id = ${orgId} AND lane = ${lane}
            AND delivery_id > ${after ?? ""}
          ORDER BY delivery_id LIMIT ${batch}
        ) AS counted`,
      ([row]) => row!,
    )
  const ofCallbacks = (after: readonly [lane: string, id: string] = [orgId + afterOrg, ""]) =>
    Effect.map(
      sql<{ n: number; lane: string; id: string }>`
        SELECT count(*)::int AS n, (array_agg(lane))[count(*)] AS lane, (array_agg(delivery_id))[count(*)] AS id FROM (
          SELECT lane, delivery_id FROM pending_deliveries
          WHERE org_id = ${orgId} AND (lane, delivery_id) > (${after[0]}, ${after[1]})
            AND lane < ${orgId + afterCallbacks}
          ORDER BY lane, delivery_id LIMIT ${batch}
        ) AS counted`,
      ([row]) => ({ n: row!.n, last: [row!.lane, row!.id] as const }),
    )

  const endpoints = yield* bounded(sql<{ id: string; lane: string; n: number }>`
    SELECT w.id, w.lane, (
      SELECT count(*)::int FROM (
        SELECT 1 FROM pending_deliveries WHERE org_id = ${orgId} AND lane = w.lane LIMIT ${sql.literal(`${laneSample}`)}
      ) AS counted
    ) AS n
    FROM webhook_endpoints w WHERE w.org_id = ${orgId} AND w.active ORDER BY n DESC, w.id`)
  let pending = 0
  let largest: { readonly id: string; readonly n: number } | undefined
  for (const { id, lane, n: sampled } of endpoints) {
    const n = sampled < laneSample || pending >= upTo ? sampled : yield* countInBatches(ofLane(lane), upTo)
    pending += n
    if (n > (largest?.n ?? 0)) largest = { id, n }
  }
  pending += yield* countInBatches(ofCallbacks, upTo - pending)
  return { pending, endpointId: largest?.id ?? null }
})

/** Counts of pending deliveries in PostgreSQL, by the primary key of the queue. */
export const layer = Layer.effect(
  PendingDeliveries,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const limit = sql.literal(limitOf("pendingDeliveries", (yield* DefaultLimits).pendingDeliveries))

    const findOver = Effect.fnUntraced(function* (orgs: ReadonlyArray<string>) {
      const suspects = yield* bounded(sql<{ orgId: string; limit: number }>`
        SELECT org.id AS "orgId", ${limit}::float8 AS "limit" FROM orgs org
        WHERE org.id = ANY(${texts(orgs)}) AND ${samplePending(sql)} > least(${limit}, ${sql.literal(`${pendingSample - 1}`)})`)
      const counted = yield* Effect.forEach(
        suspects,
        Effect.fnUntraced(function* ({ orgId, limit }) {
          const found = yield* countPending(sql, orgId, limit + 1)
          const isOver = found.pending > limit
          // The next check repeats until a count is below the limit, even without new deliveries.
          if (isOver) usage.notePending(orgId)
          return isOver ? [{ orgId, limit, ...found }] : []
        }),
      )
      return counted.flat()
    })
    const overLimit = Effect.suspend(() => {
      const orgs = usage.takeWithPending(maxOrgsPerCheck)
      if (orgs.length === 0) return Effect.succeed([])
      return findOver(orgs)
    })

    return PendingDeliveries.of({ overLimit: makeResting<Effect.Success<typeof overLimit>>([])(overLimit) })
  }),
).pipe(Layer.provide(OrgUsage.layer))
