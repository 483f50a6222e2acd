import { Effect, Layer, Schema, Struct } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient, SqlError } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { filterPath } from "../../domain/webhooks/EventFilter.ts"
import {
  type EndpointBatch,
  type HeaderNames,
  type PayloadKind,
  WebhookEndpoint,
  WebhookEndpointDetail,
} from "../../domain/webhooks/WebhookEndpoint.ts"
import {
  type EndpointSettings,
  endpointNotFound,
  externalIdTaken,
  headersOfOtherOrigin,
  sendsHeadersElsewhere,
  WebhookEndpointRepository,
} from "../../domain/webhooks/WebhookEndpointRepository.ts"
import { Metadata } from "../../domain/Schemas.ts"
import { audited } from "../audit/audited.ts"
import {
  afterCursor,
  assignments,
  date,
  decodePage,
  decodeRows,
  exactJson,
  given,
  integers,
  pageOf,
  texts,
  toJsonText,
  Time,
  typed,
} from "../database/fragments.ts"
import { newRowBytes } from "../../domain/orgs/StoredBytes.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import { signingKeysOf } from "./signingKeysSql.ts"
import { cancelLanes, type EndedLane, endLane, lanesOfEndpoint, ofEndpoints, queuedState } from "../queue/lanes.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"

const Row = Schema.Struct({
  ...WebhookEndpoint.fields,
  failing_since: Schema.NullOr(Time),
  created_at: Time,
  updated_at: Time,
})
const decode = decodePage(Row)
const decodeDetail = decodeRows(
  Schema.Struct({
    ...Struct.omit(WebhookEndpointDetail.fields, ["health"]),
    ...Row.fields,
    metadata: Schema.NullOr(exactJson(Metadata)),
    filter: Schema.NullOr(exactJson(Metadata)),
    deactivated_at: Schema.NullOr(Time),
  }),
)

/** The newest deliveries of an endpoint whose states are counted. */
const maxCountedDeliveries = 10_000

const orNotFound = Effect.flatMap((rows: ReadonlyArray<unknown>) =>
  rows.length === 0 ? Effect.fail(endpointNotFound()) : Effect.void,
)

/** Fails with `Conflict` when another endpoint of the org has the external id. */
const orTaken = <A, E, R>(write: Effect.Effect<A, E, R>) =>
  Effect.catchIf(
    write,
    (error) =>
      SqlError.isSqlError(error) &&
      error.reason._tag === "UniqueViolation" &&
      error.reason.constraint === "webhook_endpoints_by_external_id",
    () => Effect.fail(externalIdTaken()),
  )

interface SigningRow {
  readonly url: string
  readonly secret: string
  readonly previous: string | null
  readonly headers: string | null
  readonly auth: string | null
  readonly batch: EndpointBatch | null
  readonly payload: typeof PayloadKind.Type
  readonly headerNames: typeof HeaderNames.Type
  readonly types: ReadonlyArray<string> | null
  readonly keys: ReadonlyArray<string>
}

/** Webhook endpoints in PostgreSQL. */
export const layer = Layer.effect(
  WebhookEndpointRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const random = yield* SecureRandom.SecureRandom
    const limit = yield* Limits.make("endpoints")
    const bytes = yield* ByteLimit.make

    /** SQL: the `EndpointBatch` of an endpoint; `NULL` when it has none. */
    const batchOf = () =>
      sql.literal(
        "CASE WHEN batch_max IS NOT NULL THEN json_build_object('max', batch_max, 'within_ms', batch_within_ms) END",
      )

    /** Locks an endpoint if it is active; returns its lane, which ends when the endpoint is deactivated. */
    const lockActive = (orgId: string, id: string) => sql<EndedLane>`
      SELECT org_id AS "orgId", id AS "endpointId", lane FROM webhook_endpoints
      WHERE id = ${id} AND org_id = ${orgId} AND active FOR NO KEY UPDATE`

    const cast = typed(sql)
    const columnsOf = (settings: Partial<EndpointSettings>) => {
      const { auth, batch, channels, eventTypes, filter, headers, metadata, retryDelays } = settings
      return {
        event_types: cast("text[]", eventTypes && texts(eventTypes)),
        headers: cast("text", headers && headers.stored),
        // The field headerNames has the column header_style.
        header_names: cast("text[]", headers && texts(headers.names)),
        auth: cast("text", auth && auth.stored),
        auth_shown: cast("text::json", auth && toJsonText(auth.shown)),
        max_per_second: cast("int", settings.maxPerSecond),
        ordered: cast("boolean", settings.ordered),
        batch_max: cast("smallint", batch && batch.max),
        batch_within_ms: cast("int", batch && batch.within_ms),
        retry_delays: cast("int[]", retryDelays && integers(retryDelays)),
        signature: cast("text", settings.signature),
        external_id: cast("text", settings.externalId),
        metadata: cast("text::json", metadata && toJsonText(metadata)),
        channels: cast("text[]", channels && texts(channels)),
        filter: cast("text::json", filter && toJsonText(filter)),
        filter_path: cast("text::jsonpath", filter && filterPath(filter)),
        payload: cast("text", settings.payload),
        header_style: cast("text", settings.headerNames),
      }
    }

    /** The assignments of an UPDATE for a request's changes. */
    const changesOf = (changes: EndpointUpdate, isDeactivated: boolean) => {
      const { active, description, now, previousSecretUntil, replacedSecret, secret, url } = changes
      const sets = assignments(sql, { updated_at: date(now), url, description, active, secret, ...columnsOf(changes) })
      // An endpoint that is activated, or has a new URL, has no failures yet.
      if (active === true) {
        sets.push(sql`failing_since = NULL, failures = 0, deactivated_at = NULL, deactivated_reason = NULL`)
      } else if (url !== undefined) {
        sets.push(sql`failing_since = CASE WHEN url = ${url} THEN failing_since END`)
      }
      if (isDeactivated) sets.push(endLane(sql, now, "by_request"))
      if (secret !== undefined) {
        sets.push(
          sql`previous_secret =
            CASE WHEN previous_secret = ${replacedSecret ?? null} THEN previous_secret ELSE secret END`,
          sql`previous_secret_until = ${date(previousSecretUntil)}`,
        )
      }
      return sets
    }

    /** Changes an endpoint that is locked as a request asks; returns no row when there is no such endpoint. */
    const updateEndpoint = Effect.fnUntraced(function* (
      orgId: string,
      id: string,
      changes: EndpointUpdate,
      entry: AuditEntry,
    ) {
      if (changes.url !== undefined && (changes.headers === undefined || changes.auth === undefined)) {
        const [keepsHeaders, keepsAuth] = [changes.headers === undefined, changes.auth === undefined]
        const [stored] = yield* sql<{ url: string }>`
          SELECT url FROM webhook_endpoints
          WHERE id = ${id} AND org_id = ${orgId}
            AND (headers IS NOT NULL AND ${keepsHeaders} OR auth IS NOT NULL AND ${keepsAuth})`
        if (stored !== undefined && sendsHeadersElsewhere(stored.url, changes.url)) return yield* headersOfOtherOrigin()
      }
      const ended = changes.active === false ? yield* lockActive(orgId, id) : []
      const sets = changesOf(changes, ended.length > 0)
      const updated = yield* audited(
        sql,
        // An endpoint that was inactive before is not emitted again.
        ended.length === 0 ? { ...entry, event: undefined } : entry,
        sql`
          UPDATE webhook_endpoints w SET ${sql.csv(sets)} WHERE id = ${id} AND org_id = ${orgId}
          RETURNING org_id AS "orgId"`,
      )
      if (changes.maxPerSecond != null) yield* setThrottle(orgId, id)(updated)
      yield* cancelLanes(sql, random, ended, changes.now)
      return updated
    })

    /**
     * In the transaction that wrote an endpoint with a limit per second: lets it send from now on. Keeps the time of an
     * endpoint that has one, and does nothing when there is no such endpoint.
     */
    const setThrottle = (orgId: string, endpointId: string) => (written: ReadonlyArray<unknown>) =>
      written.length === 0
        ? Effect.void
        : Effect.asVoid(sql`
            INSERT INTO endpoint_throttles (org_id, endpoint_id, next_at) VALUES (${orgId}, ${endpointId}, now())
            ON CONFLICT DO NOTHING`)

    return WebhookEndpointRepository.of({
      insert: ({ id, orgId, url, secret, description, active, now, ...settings }, entry) => {
        const columns = given(columnsOf(settings))
        const withThrottle = <E, R>(insert: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
          settings.maxPerSecond === null ? insert : sql.withTransaction(Effect.tap(insert, setThrottle(orgId, id)))
        return limit
          .admit(Limits.orgOwner(sql, orgId), { bytes: newRowBytes([url, secret, description, settings]) }, (beside) =>
            audited(
              sql,
              entry,
              sql`
                INSERT INTO webhook_endpoints (id, org_id, lane, url, secret, description, active, created_at,
                  updated_at, deactivated_at, deactivated_reason,
                  ${sql.literal(columns.map(([name]) => name).join(", "))})
                SELECT ${id}, rows.id, ${id}, ${url}, ${secret}, ${description}, active, ${date(now)}, ${date(now)},
                  CASE WHEN NOT active THEN ${date(now)}::timestamptz END, CASE WHEN NOT active THEN 'by_request' END,
                  ${sql.csv(columns.map(([, value]) => value))}
                FROM (SELECT ${active}::boolean AS active) AS given CROSS JOIN rows
                RETURNING org_id AS "orgId"`,
              sql`SELECT id FROM orgs org WHERE id = ${orgId} AND ${limit.fits(beside)}`,
            ).pipe(
              withThrottle,
              orTaken,
              orUnavailable,
              Effect.map(([made]) => made),
            ),
          )
          .pipe(Effect.flatMap((made) => (made === undefined ? Effect.fail(orgDeleted) : Effect.void)))
      },
      get: (orgId, by) =>
        sql`
          SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at, external_id,
            metadata::text, event_types,
            channels, filter::text, payload, header_style AS header_names, header_names AS headers,
              auth_shown AS auth, ${batchOf()} AS batch,
            max_per_second, ordered, retry_delays, signature, failing_since, deactivated_at, deactivated_reason, (
              SELECT jsonb_build_object('pending', 0, 'delivered', 0, 'failed', 0, 'canceled', 0, 'skipped', 0)
                || coalesce(jsonb_object_agg(state, count), '{}') FROM (
                SELECT state, count(*) FROM (
                  SELECT * FROM (
                    (SELECT d.id, d.state FROM ${ofEndpoints(sql)}
                    WHERE d.endpoint_id = w.id AND d.org_id = ${orgId} ORDER BY d.id DESC LIMIT ${maxCountedDeliveries})
                    UNION ALL
                    SELECT d.id, ${queuedState(sql)}
                      FROM ${lanesOfEndpoint(sql, sql`${orgId}`, sql.literal("w.id"))} AS l
                    CROSS JOIN LATERAL (
                      SELECT delivery_id AS id, lane, created_at, w.id AS endpoint_id FROM pending_deliveries
                      WHERE org_id = ${orgId} AND lane = l.lane ORDER BY delivery_id DESC LIMIT ${maxCountedDeliveries}
                    ) AS d
                  ) AS of_both ORDER BY id DESC LIMIT ${maxCountedDeliveries}
                ) AS newest GROUP BY state
              ) AS counted
            ) AS deliveries
          FROM webhook_endpoints w
          WHERE ${"id" in by ? sql`id = ${by.id}` : sql`external_id = ${by.externalId}`} AND org_id = ${orgId}`.pipe(
          decodeDetail,
          orUnavailable,
          Effect.flatMap(([row]) => (row === undefined ? Effect.fail(endpointNotFound()) : Effect.succeed(row))),
        ),

      list: (orgId, page, ids) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id AS webhook_endpoint_id, url, description, active, failing_since, deactivated_reason, created_at,
              updated_at
            FROM webhook_endpoints
            WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}
              AND ${ids === undefined ? sql.literal("true") : sql`id = ANY(${texts(ids)})`}`,
          "webhook_endpoint_id",
          ["url", "description"],
        ).pipe(decode, orUnavailable),

      update: (orgId, id, changes, entry) =>
        bytes
          .changing("endpoint", sql`id = ${id} AND org_id = ${orgId}`, updateEndpoint(orgId, id, changes, entry))
          .pipe(orTaken, orUnavailable, orNotFound),
      deactivate: Effect.fnUntraced(
        function* (orgId, id, now, entry) {
          const ended = yield* lockActive(orgId, id)
          if (ended.length === 0) return false
          yield* audited(
            sql,
            entry,
            sql`
              UPDATE webhook_endpoints w SET active = false, updated_at = ${date(now)},
                ${endLane(sql, now, "failing")}
              WHERE id = ${id} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
          )
          yield* cancelLanes(sql, random, ended, now)
          return true
        },
        sql.withTransaction,
        orUnavailable,
      ),
      remove: Effect.fnUntraced(
        function* (orgId, id, now, entry) {
          const removed = yield* audited<EndedLane>(
            sql,
            entry,
            sql`
              DELETE FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId}
              RETURNING org_id AS "orgId", id AS "endpointId", lane`,
          )
          yield* cancelLanes(sql, random, removed, now)
          yield* sql`DELETE FROM endpoint_throttles WHERE org_id = ${orgId} AND endpoint_id = ${id}`
          return removed
        },
        sql.withTransaction,
        orUnavailable,
        orNotFound,
      ),

      findForSending: (orgId, id, now) =>
        sql<SigningRow>`
          SELECT url, secret, headers, auth, ${batchOf()} AS batch, payload, header_style AS "headerNames",
            event_types AS types,
            CASE WHEN previous_secret_until > ${date(now)} THEN previous_secret END AS previous,
            ${signingKeysOf(sql, sql.literal("w"), date(now))} AS keys
          FROM webhook_endpoints w WHERE id = ${id} AND org_id = ${orgId}`.pipe(
          orUnavailable,
          Effect.flatMap(([row]) => {
            if (row === undefined) return Effect.fail(endpointNotFound())
            const { keys, previous, secret, types, ...others } = row
            const secrets = previous === null ? [secret] : [secret, previous]
            return Effect.succeed({ ...others, secrets, eventTypes: types, signingKeys: keys })
          }),
        ),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

type EndpointUpdate = Parameters<WebhookEndpointRepository["Service"]["update"]>[2]
