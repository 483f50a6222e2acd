import type { SqlClient, Statement } from "effect/sql"

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
