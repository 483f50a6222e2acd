import { Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { type HourOfKey, KeyUsageReport, KeyUsageRepository } from "../../domain/keys/KeyUsage.ts"
import { aliveOrgs, deleteFirst, isAlive } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { every, hourly, logged } from "../background.ts"

/** The key of the rows that add up an org. */
const wholeOrg = ""

/** Usage of keys in PostgreSQL. */
export const layer = Layer.effect(
  KeyUsageRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const sums = sql.literal(`
      sum(valid)::bigint AS valid, sum(forbidden)::bigint AS forbidden, sum(limited)::bigint AS limited,
      sum(cost)::bigint AS cost`)

    return KeyUsageRepository.of({
      // In the order of the primary key, so that replicas that write at the same time do not deadlock.
      add: (hours) =>
        sql`
          WITH ${aliveOrgs(
            sql,
            hours.map(({ orgId }) => orgId),
          )}, used AS (
            SELECT * FROM json_to_recordset(${JSON.stringify(hours)}) AS used (
              "orgId" text, "keyId" text, hour integer, valid bigint, forbidden bigint, limited bigint, cost bigint
            ) WHERE ${isAlive(sql, 'used."orgId"')}
          )
          INSERT INTO key_usage AS u (org_id, key_id, hour, valid, forbidden, limited, cost)
          SELECT * FROM (
            SELECT "orgId" AS org_id, "keyId" AS key_id, hour, ${sums} FROM used GROUP BY 1, 2, 3
            UNION ALL
            SELECT "orgId", ${wholeOrg}::text, hour, ${sums} FROM used GROUP BY 1, 3
          ) AS sums ORDER BY org_id COLLATE "C", key_id COLLATE "C", hour
          ON CONFLICT (org_id, key_id, hour) DO UPDATE SET
            valid = u.valid + excluded.valid, forbidden = u.forbidden + excluded.forbidden,
            limited = u.limited + excluded.limited, cost = u.cost + excluded.cost`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),

      find: (orgId, keyId, { every, from, to }) =>
        sql<Omit<HourOfKey, "orgId" | "keyId">>`
          SELECT (${from}::int + (hour - ${from}::int) / ${every}::int * ${every}::int) AS hour, sum(valid)::float8 AS valid,
            sum(forbidden)::float8 AS forbidden, sum(limited)::float8 AS limited, sum(cost)::float8 AS cost
          FROM key_usage
          WHERE org_id = ${orgId} AND key_id = ${keyId ?? wholeOrg} AND hour >= ${from} AND hour < ${to}
          GROUP BY 1 ORDER BY 1`.pipe(orUnavailable),

      removeOld: (before, limit) =>
        orUnavailableWithin("sweep")(
          deleteFirst(sql, "key_usage", sql`hour < ${before} ORDER BY hour LIMIT ${limit} FOR UPDATE SKIP LOCKED`),
        ),
    })
  }),
)

/**
 * Writes the uses of keys every five seconds, and returns leased quotas that are idle every second. Does both when
 * the process stops. No request waits for it.
 */
export const usageWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { flushUsage, returnIdleQuotas, returnQuotas } = yield* ApiKeys
    const flush = logged("Key usage is not written yet", flushUsage)
    const problem = "Leased quotas are not returned"
    yield* Effect.addFinalizer(() => Effect.andThen(logged(problem, returnQuotas), flush))
    yield* every("1 second", problem, returnIdleQuotas)
    yield* Effect.forkScoped(Effect.repeat(flush, Schedule.spaced("5 seconds")))
  }),
)

/** Removes old usage of keys about every hour. */
export const usageRetentionWorker = Layer.effectDiscard(
  Effect.flatMap(KeyUsageReport, ({ removeOld }) => hourly("Old usage of keys is not removed", removeOld)),
)
