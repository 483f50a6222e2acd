import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { WebhookEndpoint } from "../../domain/WebhookEndpoint.ts"
import { endpointNotFound, WebhookEndpointRepository } from "../../domain/WebhookEndpoints.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { audited } from "./audited.ts"
import { cancelPending } from "./cancelPending.ts"
import { date, decodeRows, Time } from "./fragments.ts"

const Row = Schema.Struct({
  ...WebhookEndpoint.fields,
  created_at: Time,
  updated_at: Time,
})
const decode = decodeRows(Row)

/** Webhook endpoints in PostgreSQL. */
export const layer = Layer.effect(
  WebhookEndpointRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const orNotFound = Effect.flatMap((rows: ReadonlyArray<unknown>) =>
      rows.length === 0 ? Effect.fail(endpointNotFound()) : Effect.void,
    )

    return WebhookEndpointRepository.of({
      insert: ({ id, orgId, url, secret, description, active, now }, entry) =>
        audited(
          sql,
          entry,
          sql`
            INSERT INTO webhook_endpoints (id, org_id, url, secret, description, active, created_at, updated_at)
            VALUES (${id}, ${orgId}, ${url}, ${secret}, ${description}, ${active}, ${date(now)}, ${date(now)})
            RETURNING org_id AS "orgId"`,
        ).pipe(Effect.asVoid, orUnavailable),

      list: (orgId) =>
        sql`
          SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at
          FROM webhook_endpoints WHERE org_id = ${orgId} ORDER BY id`.pipe(decode, orUnavailable),

      update: (orgId, id, changes, entry) =>
        Effect.gen(function* () {
          const sets = [sql`updated_at = ${date(changes.now)}`]
          if (changes.url !== undefined) sets.push(sql`url = ${changes.url}`)
          if (changes.description !== undefined) sets.push(sql`description = ${changes.description}`)
          if (changes.active !== undefined) sets.push(sql`active = ${changes.active}`)
          // An endpoint that is switched on, or is another receiver from now on, starts with a clean record.
          if (changes.active === true) sets.push(sql`failing_since = NULL`)
          else if (changes.url !== undefined) {
            sets.push(sql`failing_since = CASE WHEN url = ${changes.url} THEN failing_since END`)
          }
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
          if (updated.length > 0 && changes.active === false) yield* cancelPending(sql, [id], changes.now)
          return updated
        }).pipe(sql.withTransaction, orUnavailable, orNotFound),

      remove: (orgId, id, now, entry) =>
        Effect.gen(function* () {
          const deleted = yield* audited(
            sql,
            entry,
            sql`DELETE FROM webhook_endpoints WHERE id = ${id} AND org_id = ${orgId} RETURNING org_id AS "orgId"`,
          )
          if (deleted.length > 0) yield* cancelPending(sql, [id], now)
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
)
