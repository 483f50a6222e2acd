import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Alert } from "../../domain/alerts/Alert.ts"
import { alertNotFound, AlertRepository, maxAlerts, tooManyAlerts } from "../../domain/alerts/Alerts.ts"
import { AlertInterval, AlertWatch, secondsToNextLook } from "../../domain/alerts/AlertWatch.ts"
import { noOrg, orgNotFound } from "../../domain/Principal.ts"
import { Timestamp } from "../../domain/Schemas.ts"
import { audited } from "../audit/audited.ts"
import { every } from "../background.ts"
import { lockName } from "../database/boundedTransactions.ts"
import { afterCursor, date, decodePage, decodeRows, orgOf, pageOf, Time } from "../database/fragments.ts"
import { everywhere, Nodes } from "../database/Nodes.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { isPlaced } from "../queue/pickDue.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"

/** Due alerts among which a claim chooses: more owners than have looks in flight, each with all of its alerts. */
const maxCandidates = 1_000

/** What the column `alert` has: all but the secret and what is beside it. */
const Stored = Schema.Struct({ ...Alert.fields, failures: Schema.Int, toldOf: Schema.optionalKey(Timestamp) })
const Row = Schema.Struct({ alert: Schema.fromJsonString(Stored), secret: Schema.String })
const Claimed = Schema.Struct({ ...Row.fields, leaseUntil: Time, now: Time })
const [decode, decodeList, decodeClaimed] = [decodeRows(Row), decodePage(Row), decodeRows(Claimed)]
const encode = Schema.encodeSync(Schema.fromJsonString(Stored))
/** The alert of a row, with what else the row has. */
const alertOf = <R extends typeof Row.Type>({ alert, ...rest }: R) => ({ ...alert, ...rest })

/** Of a deleted org, nothing is there any more. */
const hasOwner = "(org_id = '' OR EXISTS (SELECT FROM orgs WHERE orgs.id = alerts.org_id))"

/** Endpoints that fail or were deactivated, in one database. */
const badEndpoints = (
  sql: SqlClient.SqlClient,
  orgId: string | null,
  failingBefore: DateTime.Utc | null,
  limit: number,
) => {
  const [since, order] = failingBefore === null ? ["deactivated_at", "DESC"] : ["failing_since", "ASC"]
  const isBad =
    failingBefore === null
      ? sql`deactivated_reason IN ('gone', 'failing')`
      : sql`active AND failing_since <= ${date(failingBefore)}`
  // Of one org in a CASE: a plan with old statistics would read an index of all orgs instead.
  const which =
    orgId === null
      ? sql`${isBad} AND ${isPlaced(sql, "e")}`
      : sql`org_id = ${orgId} AND CASE WHEN ${isBad} THEN true END`
  return sql<{ endpointId: string; orgId: string; url: string; since: Date }>`
    SELECT id AS "endpointId", org_id AS "orgId", url, ${sql(since)} AS since FROM webhook_endpoints e
    WHERE ${which} ORDER BY ${sql(since)} ${sql.literal(order)} LIMIT ${limit}`
}

/** Alerts in PostgreSQL: on the platform's database, also those of orgs on nodes. */
export const layer = Layer.effect(
  AlertRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const nodes = yield* Nodes
    const bytes = yield* ByteLimit.make
    const exists = sql.literal(hasOwner)
    const is = (orgId: string | null, alertId: string) =>
      sql`id = ${alertId} AND org_id = ${orgId ?? noOrg} AND ${exists}`
    const orNotFound = Effect.flatMap((rows: ReadonlyArray<unknown>) =>
      rows.length === 0 ? Effect.fail(alertNotFound()) : Effect.void,
    )

    return AlertRepository.of({
      insert: Effect.fnUntraced(
        function* (alert, entry) {
          const owner = alert.orgId ?? noOrg
          // The first lock lets no other alert of the owner in until the commit: the administrator has no row to lock.
          // With the second, no erasure begins before the commit.
          yield* lockName(sql, `alerts:${owner}`)
          const [org] = yield* sql`SELECT id FROM orgs WHERE id = ${owner} FOR KEY SHARE`
          if (org === undefined && alert.orgId !== null) return yield* orgNotFound()
          const insert = audited(
            sql,
            entry,
            sql`
            INSERT INTO alerts (id, org_id, alert, secret, active, due_at)
            SELECT ${alert.alertId}, ${owner}, ${encode(alert)}, ${alert.secret}, ${alert.active}::boolean, now()
            WHERE (SELECT count(*) FROM alerts WHERE org_id = ${owner}) < ${maxAlerts} RETURNING org_id AS "orgId"`,
          )
          const made = yield* bytes.changing("alert", is(alert.orgId, alert.alertId), insert)
          if (made.length === 0) return yield* tooManyAlerts()
        },
        sql.withTransaction,
        orUnavailable,
      ),

      list: (orgId, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id, alert, secret FROM alerts
            WHERE org_id = ${orgId ?? noOrg} AND ${exists} AND ${afterCursor(sql, page)}`,
          "id",
          ["alert", "secret"],
        ).pipe(
          decodeList,
          orUnavailable,
          Effect.map(({ hasMore, items }) => ({ hasMore, items: items.map(alertOf) })),
        ),

      find: (orgId, alertId) =>
        sql`SELECT alert, secret FROM alerts WHERE ${is(orgId, alertId)}`.pipe(
          decode,
          orUnavailable,
          Effect.flatMap(([row]) => (row === undefined ? Effect.fail(alertNotFound()) : Effect.succeed(alertOf(row)))),
        ),

      change: (orgId, alertId, change, entry) =>
        Effect.gen(function* () {
          const [row] = yield* decode(sql`
            SELECT alert, secret FROM alerts WHERE ${is(orgId, alertId)}`)
          if (row === undefined) return yield* alertNotFound()
          const alert = yield* change(alertOf(row))
          yield* audited(
            sql,
            entry,
            sql`
              UPDATE alerts SET alert = ${encode(alert)}, active = ${alert.active}::boolean, due_at = now()
              WHERE ${is(orgId, alertId)} RETURNING org_id AS "orgId"`,
          )
          return alert
        }).pipe((change) => bytes.changing("alert", is(orgId, alertId), change), orUnavailable),

      remove: (orgId, alertId, entry) =>
        audited(sql, entry, sql`DELETE FROM alerts WHERE ${is(orgId, alertId)} RETURNING org_id AS "orgId"`).pipe(
          orUnavailable,
          orNotFound,
        ),

      claim: (limit, leaseSeconds, { inFlight, max }) =>
        sql`
          WITH due AS (
            SELECT id, org_id, due_at FROM alerts WHERE active AND due_at <= now() AND ${exists}
            ORDER BY due_at LIMIT ${maxCandidates}
          ), in_turn AS (
            SELECT id, due_at, coalesce(looks::int, 0) + row_number() OVER (PARTITION BY org_id ORDER BY due_at) AS turn
            FROM due LEFT JOIN json_each_text(${JSON.stringify(Object.fromEntries(inFlight))}) AS busy (org_id, looks)
              USING (org_id)
          ), chosen AS (
            SELECT id FROM in_turn WHERE turn <= ${max}::int ORDER BY turn, due_at LIMIT ${limit}
          )
          UPDATE alerts SET due_at = date_trunc('milliseconds', now()) + ${leaseSeconds}::int * interval '1 second'
          WHERE id = ANY(ARRAY(
            SELECT id FROM alerts WHERE id = ANY(ARRAY(SELECT id FROM chosen)) AND active AND due_at <= now()
            FOR UPDATE SKIP LOCKED))
          RETURNING alert, secret, due_at AS "leaseUntil", now() AS now`.pipe(
          decodeClaimed,
          orUnavailableWithin("sweep"),
          Effect.map((rows) => rows.map(alertOf)),
        ),

      record: (alert, entry) => {
        const written = sql<{ readonly orgId: string }>`
          UPDATE alerts SET alert = ${encode(alert)}, active = ${alert.active}::boolean,
            due_at = now() + ${secondsToNextLook(alert)}::int * interval '1 second'
          WHERE ${is(alert.orgId, alert.alertId)} AND due_at = ${date(alert.leaseUntil)} RETURNING org_id AS "orgId"`
        return (entry === undefined ? written : audited(sql, entry, written)).pipe(
          Effect.map((rows) => rows.length > 0),
          orUnavailableWithin("sweep"),
        )
      },

      endpoints: Effect.fnUntraced(function* (scope, failingBefore, limit) {
        const orgId = orgOf(scope)
        const ask = (at: SqlClient.SqlClient) => orUnavailable(badEndpoints(at, orgId, failingBefore, limit))
        const found =
          orgId === null ? yield* everywhere(sql, nodes, ask) : [yield* ask((yield* nodes.of(orgId))?.sql ?? sql)]
        const sign = failingBefore === null ? -1 : 1
        return found
          .flat()
          .toSorted((a, b) => sign * (a.since.getTime() - b.since.getTime()))
          .slice(0, limit)
          .map((endpoint) => ({ ...endpoint, since: DateTime.fromDateUnsafe(endpoint.since) }))
      }),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** Looks for alerts that are due. An installation without alerts pays for an index that is empty. */
export const alertWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { run } = yield* AlertWatch
    yield* every(yield* AlertInterval, "Alerts are not looked at", run)
  }),
)
