import type { DateTime } from "effect"
import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import {
  type DeactivatedReason,
  WebhookEndpoint,
  WebhookEndpointDetail,
} from "../../domain/webhooks/WebhookEndpoint.ts"
import { endpointNotFound, WebhookEndpointRepository } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { cancelLanes, type EndedLane } from "./cancelLanes.ts"
import { afterCursor, date, decodePage, decodeRows, pageOf, Time } from "../database/fragments.ts"
import { nextLane, stateNow } from "./lanes.ts"
import * as Limited from "../orgs/limited.ts"

const Row = Schema.Struct({
  ...WebhookEndpoint.fields,
  created_at: Time,
  updated_at: Time,
})
const decode = decodePage(Row)
const decodeDetail = decodeRows(
  Schema.Struct({
    ...WebhookEndpointDetail.fields,
    ...Row.fields,
    failing_since: Schema.NullOr(Time),
    deactivated_at: Schema.NullOr(Time),
  }),
)

/** Of how many deliveries the states are counted: the newest ones. */
const maxCounted = 10_000

const noOrg = new Error("The org does not exist")

/** Webhook endpoints in PostgreSQL. */
export const layer = Layer.effect(
  WebhookEndpointRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const limit = yield* Limited.make("endpoints")

    /** Locks an endpoint if it is active; returns its lane. */
    const lockActive = (orgId: string, id: string) => sql<EndedLane>`
      SELECT org_id AS "orgId", id AS "endpointId", coalesce(lane, id) AS lane FROM webhook_endpoints
      WHERE id = ${id} AND org_id = ${orgId} AND active FOR NO KEY UPDATE`

    /** In an UPDATE that deactivates an endpoint: ends its lane, and writes when and why. */
    const laneEnds = (now: DateTime.Utc, reason: typeof DeactivatedReason.Type) =>
      sql`lane = ${nextLane(sql)}, deactivated_at = ${date(now)}, deactivated_reason = ${reason}`

    const orNotFound = Effect.flatMap((rows: ReadonlyArray<unknown>) =>
      rows.length === 0 ? Effect.fail(endpointNotFound()) : Effect.void,
    )

    return WebhookEndpointRepository.of({
      insert: ({ id, orgId, url, secret, description, active, now }, entry) =>
        limit
          .admit({ key: orgId, from: () => sql`orgs org WHERE id = ${orgId}` }, (room) =>
            audited(
              sql,
              entry,
              sql`
                INSERT INTO webhook_endpoints (id, org_id, url, secret, description, active, created_at, updated_at,
                  deactivated_at, deactivated_reason)
                SELECT ${id}, org.id, ${url}, ${secret}, ${description}, active, ${date(now)}, ${date(now)},
                  CASE WHEN NOT active THEN ${date(now)}::timestamptz END, CASE WHEN NOT active THEN 'by_request' END
                FROM (SELECT ${active}::boolean AS active) AS given CROSS JOIN orgs org
                WHERE org.id = ${orgId} AND ${limit.guard(sql`${room}::boolean`)}
                RETURNING org_id AS "orgId"`,
            ).pipe(
              orUnavailable,
              Effect.map(([made]) => made),
            ),
          )
          .pipe(Effect.flatMap((made) => (made === undefined ? Effect.die(noOrg) : Effect.void))),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at
            FROM webhook_endpoints WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`,
          "webhook_endpoint_id",
          ["url", "description"],
        ).pipe(decode, orUnavailable),

      get: (orgId, id) =>
        sql`
          SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at, failing_since,
            deactivated_at, deactivated_reason, (
              SELECT jsonb_build_object('pending', 0, 'delivered', 0, 'failed', 0, 'canceled', 0, 'skipped', 0)
                || coalesce(jsonb_object_agg(state, count), '{}') FROM (
                SELECT state, count(*) FROM (
                  SELECT ${stateNow(sql)} AS state FROM deliveries d WHERE d.endpoint_id = ${id} AND d.org_id = ${orgId}
                  ORDER BY d.id DESC LIMIT ${maxCounted}
                ) AS newest GROUP BY state
              ) AS counted
            ) AS deliveries
          FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}`.pipe(
          decodeDetail,
          orUnavailable,
          Effect.flatMap(([row]) => (row === undefined ? Effect.fail(endpointNotFound()) : Effect.succeed(row))),
        ),

      update: (orgId, id, changes, entry) =>
        Effect.gen(function* () {
          // Of an active endpoint that is deactivated: the lane that ends with it.
          const ended = changes.active === false ? yield* lockActive(orgId, id) : []
          const sets = [sql`updated_at = ${date(changes.now)}`]
          if (changes.url !== undefined) sets.push(sql`url = ${changes.url}`)
          if (changes.description !== undefined) sets.push(sql`description = ${changes.description}`)
          if (changes.active !== undefined) sets.push(sql`active = ${changes.active}`)
          // An endpoint that is activated, or is another receiver from now on, starts with a clean record.
          if (changes.active === true) {
            sets.push(sql`failing_since = NULL, failures = 0, deactivated_at = NULL, deactivated_reason = NULL`)
          } else if (changes.url !== undefined) {
            sets.push(sql`failing_since = CASE WHEN url = ${changes.url} THEN failing_since END`)
          }
          if (ended.length > 0) sets.push(laneEnds(changes.now, "by_request"))
          if (changes.secret !== undefined) {
            sets.push(
              sql`previous_secret = secret`,
              sql`previous_secret_until = ${date(changes.previousSecretUntil)}`,
              sql`secret = ${changes.secret}`,
            )
          }
          const updated = yield* audited(
            sql,
            entry,
            sql`
              UPDATE webhook_endpoints SET ${sql.csv(sets)} WHERE id = ${id} AND org_id = ${orgId}
              RETURNING org_id AS "orgId"`,
          )
          yield* cancelLanes(sql, random, ended, changes.now)
          return updated
        }).pipe(sql.withTransaction, orUnavailable, orNotFound),

      deactivate: (orgId, id, now, entry) =>
        Effect.gen(function* () {
          const ended = yield* lockActive(orgId, id)
          if (ended.length === 0) return false
          yield* audited(
            sql,
            entry,
            sql`
              UPDATE webhook_endpoints SET active = false, updated_at = ${date(now)}, ${laneEnds(now, "failing")}
              WHERE id = ${id} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
          )
          yield* cancelLanes(sql, random, ended, now)
          return true
        }).pipe(sql.withTransaction, orUnavailable),

      remove: (orgId, id, now, entry) =>
        Effect.gen(function* () {
          const deleted = (yield* audited(
            sql,
            entry,
            sql`
              DELETE FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}
              RETURNING org_id AS "orgId", id AS "endpointId", coalesce(lane, id) AS lane`,
          )) as ReadonlyArray<unknown> as ReadonlyArray<EndedLane>
          yield* cancelLanes(sql, random, deleted, now)
          return deleted
        }).pipe(sql.withTransaction, orUnavailable, orNotFound),

      findSigning: (orgId, id, now) =>
        sql<{ url: string; secret: string; previous: string | null }>`
          SELECT url, secret,
            CASE WHEN previous_secret_until > ${date(now)} THEN previous_secret END AS previous
          FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}`.pipe(
          orUnavailable,
          Effect.flatMap(([row]) =>
            row === undefined
              ? Effect.fail(endpointNotFound())
              : Effect.succeed({
                  url: row.url,
                  secrets: row.previous === null ? [row.secret] : [row.secret, row.previous],
                }),
          ),
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
