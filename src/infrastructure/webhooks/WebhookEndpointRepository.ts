import { Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { WebhookEndpoint, WebhookEndpointDetail } from "../../domain/webhooks/WebhookEndpoint.ts"
import { endpointNotFound, WebhookEndpointRepository } from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { integersOrNull, textsOrNull } from "../database/arrays.ts"
import { inOrgs } from "../database/buckets.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { afterCursor, date, decodePage, decodeRows, pageOf, Time } from "../database/fragments.ts"
import { deactivateEndpoint, removeEndpoint, updateEndpoint } from "./endpointChanges.ts"
import { setPace } from "./endpointPaces.ts"
import { stateNow } from "./laneSql.ts"
import { signingKeysOf } from "./signingKeysOf.ts"
import * as Limited from "../orgs/limited.ts"

type NewEndpoint = Parameters<WebhookEndpointRepository["Service"]["insert"]>[0]

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

/** The newest deliveries of an endpoint whose states are counted. */
const maxCountedDeliveries = 10_000

const noOrg = new Error("The org does not exist")

const orNotFound = Effect.flatMap((rows: ReadonlyArray<unknown>) =>
  rows.length === 0 ? Effect.fail(endpointNotFound()) : Effect.void,
)

interface SigningRow {
  readonly url: string
  readonly secret: string
  readonly previous: string | null
  readonly headers: string | null
  readonly keys: ReadonlyArray<string>
}

/** Inserts an endpoint, or fails when the org has no room for another. */
const insertEndpoint = (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  { id, orgId, url, secret, description, active, now, ...settings }: NewEndpoint,
  entry: AuditEntry,
) =>
  limit
    .admit(Limited.orgOwner(sql, orgId), (hasRoom) =>
      audited(
        sql,
        entry,
        sql`
          INSERT INTO webhook_endpoints (id, org_id, url, secret, description, active, created_at, updated_at,
            deactivated_at, deactivated_reason, event_types, headers, header_names, max_per_second, ordered, retry_delays, signature)
          SELECT ${id}, rows.id, ${url}, ${secret}, ${description}, active, ${date(now)}, ${date(now)},
            CASE WHEN NOT active THEN ${date(now)}::timestamptz END, CASE WHEN NOT active THEN 'by_request' END,
            ${textsOrNull(settings.eventTypes)}::text[], ${settings.headers?.stored ?? null},
            ${textsOrNull(settings.headers?.names ?? null)}::text[], ${settings.maxPerSecond}::int, ${settings.ordered}::boolean,
            ${integersOrNull(settings.retryDelays)}::int[], ${settings.signature}
          FROM (SELECT ${active}::boolean AS active) AS given CROSS JOIN rows
          RETURNING org_id AS "orgId"`,
        undefined,
        sql`SELECT id FROM orgs org WHERE id = ${orgId} AND ${limit.guard(sql`${hasRoom}::boolean`)}`,
      ).pipe(
        orUnavailable,
        Effect.map(([made]) => made),
      ),
    )
    .pipe(Effect.flatMap((made) => (made === undefined ? Effect.die(noOrg) : Effect.void)))

/** Reads an endpoint with the numbers of its deliveries by state. */
const findDetail = (sql: SqlClient.SqlClient, orgId: string, id: string) =>
  sql`
    SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at, event_types, header_names AS headers, max_per_second,
      ordered, retry_delays, signature, failing_since,
      deactivated_at, deactivated_reason, (
        SELECT jsonb_build_object('pending', 0, 'delivered', 0, 'failed', 0, 'canceled', 0, 'skipped', 0)
          || coalesce(jsonb_object_agg(state, count), '{}') FROM (
          SELECT state, count(*) FROM (
            SELECT ${stateNow(sql)} AS state FROM deliveries d WHERE d.endpoint_id = ${id} AND d.org_id = ${orgId}
            ORDER BY d.id DESC LIMIT ${maxCountedDeliveries}
          ) AS newest GROUP BY state
        ) AS counted
      ) AS deliveries
    FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}`.pipe(
    decodeDetail,
    orUnavailable,
    Effect.flatMap(([row]) => (row === undefined ? Effect.fail(endpointNotFound()) : Effect.succeed(row))),
  )

/** Webhook endpoints in PostgreSQL. */
export const layer = Layer.effect(
  WebhookEndpointRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const limit = yield* Limited.make("endpoints")

    const repository = WebhookEndpointRepository.of({
      insert: (endpoint, entry) =>
        Effect.andThen(
          // First: without its row, an endpoint with a limit sends nothing. A row without an endpoint is removed with the org.
          endpoint.maxPerSecond === null
            ? Effect.void
            : orUnavailable(setPace(sql, endpoint.orgId, endpoint.id, endpoint.now)),
          insertEndpoint(sql, limit, endpoint, entry),
        ),
      get: (orgId, id) => findDetail(sql, orgId, id),

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

      update: (orgId, id, changes, entry) =>
        updateEndpoint(sql, random, orgId, id, changes, entry).pipe(sql.withTransaction, orUnavailable, orNotFound),
      deactivate: (orgId, id, now, entry) =>
        deactivateEndpoint(sql, random, orgId, id, now, entry).pipe(sql.withTransaction, orUnavailable),
      remove: (orgId, id, now, entry) =>
        removeEndpoint(sql, random, orgId, id, now, entry).pipe(sql.withTransaction, orUnavailable, orNotFound),

      findSigning: (orgId, id, now) =>
        sql<SigningRow>`
          SELECT url, secret, headers,
            CASE WHEN previous_secret_until > ${date(now)} THEN previous_secret END AS previous,
            ${signingKeysOf(sql, sql.literal("w"), date(now))} AS keys
          FROM webhook_endpoints w WHERE id = ${id} AND org_id = ${orgId}`.pipe(
          orUnavailable,
          Effect.flatMap(([row]) => {
            if (row === undefined) return Effect.fail(endpointNotFound())
            const { headers, keys, previous, secret, url } = row
            const secrets = previous === null ? [secret] : [secret, previous]
            return Effect.succeed({ url, secrets, headers, signingKeys: keys })
          }),
        ),
    })
    return inOrgs(sql, repository, ["insert", "get", "list", "update", "deactivate", "remove", "findSigning"])
  }),
).pipe(Layer.provide(OrgUsage.layer))
