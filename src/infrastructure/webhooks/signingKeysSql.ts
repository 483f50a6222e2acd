import { Effect, Layer } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { SigningKeyRepository } from "../../domain/webhooks/Signatures.ts"
import { audited } from "../audit/audited.ts"
import { date } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"

/** Ed25519 keys of orgs in PostgreSQL. */
export const layer = Layer.effect(
  SigningKeyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return SigningKeyRepository.of({
      find: (orgId, now) =>
        sql<{ current: string; previous: string | null }>`
          SELECT public_key AS current, CASE WHEN previous_until > ${date(now)} THEN previous_public_key END AS previous
          FROM org_signing_keys WHERE org_id = ${orgId}`.pipe(
          Effect.map((rows) =>
            rows.flatMap(({ current, previous }) => (previous === null ? [current] : [current, previous])),
          ),
          orUnavailable,
        ),

      insert: (orgId, { privateKey, publicKey }, now) =>
        sql`
          INSERT INTO org_signing_keys (org_id, public_key, private_key, created_at)
          SELECT id, ${publicKey}, ${privateKey}, ${date(now)}::timestamptz FROM orgs WHERE id = ${orgId}
          ON CONFLICT DO NOTHING`.pipe(Effect.asVoid, orUnavailable),

      rotate: (orgId, { privateKey, publicKey }, previousUntil, now, entry) =>
        audited(
          sql,
          entry,
          sql`
            INSERT INTO org_signing_keys AS k (org_id, public_key, private_key, created_at, previous_until)
            SELECT id, ${publicKey}, ${privateKey}, ${date(now)}::timestamptz, ${date(previousUntil)}::timestamptz FROM rows
            ON CONFLICT (org_id) DO UPDATE SET previous_public_key = k.public_key, previous_private_key = k.private_key,
              previous_until = excluded.previous_until, public_key = excluded.public_key,
              private_key = excluded.private_key, created_at = excluded.created_at
            RETURNING org_id AS "orgId"`,
          sql`SELECT id FROM orgs WHERE id = ${orgId}`,
        ).pipe(Effect.asVoid, orUnavailable),
    })
  }),
)

/**
 * SQL: the encrypted private keys that sign for an endpoint now, the newest first; empty without `ed25519`.
 *
 * @param endpoint the alias of the endpoint's row
 */
export const signingKeysOf = (sql: SqlClient.SqlClient, endpoint: Statement.Fragment, at: Date) => sql`
  coalesce(CASE WHEN ${endpoint}.signature = 'ed25519' THEN (
    SELECT array_remove(ARRAY[k.private_key, CASE WHEN k.previous_until > ${at} THEN k.previous_private_key END], NULL)
    FROM org_signing_keys k WHERE k.org_id = ${endpoint}.org_id
  ) END, '{}')`
