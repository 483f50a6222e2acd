import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Cipher } from "../../domain/Cipher.ts"
import { keyId } from "../crypto/AesCipher.ts"
import { fail, ok, warn } from "./Check.ts"

/** The number of secrets that may still be needed, by the id of the key that encrypted them. */
const secretsByKey = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ key: string; secrets: number }>`
    SELECT split_part(secret, '.', 2) AS key, count(*)::int AS secrets FROM (
      SELECT secret FROM webhook_endpoints
      UNION ALL SELECT previous_secret FROM webhook_endpoints WHERE previous_secret_until > now()
      UNION ALL SELECT secret FROM alerts
      UNION ALL SELECT private_key FROM token_keys
      UNION ALL SELECT private_key FROM org_signing_keys
      UNION ALL SELECT callback_secret FROM job_schedules
      UNION ALL SELECT callback_secret FROM jobs
    ) AS secrets
    WHERE secret IS NOT NULL GROUP BY 1 ORDER BY 1`,
)

const count = (groups: ReadonlyArray<{ readonly secrets: number }>) =>
  groups.reduce((sum, { secrets }) => sum + secrets, 0)

/** Checks that `keys` (the current key first) has the key of every stored secret. */
export const checkSecrets = Effect.fnUntraced(function* (keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>) {
  const ids = keys.map((key) => keyId(Redacted.value(key)))
  const groups = yield* secretsByKey
  const total = count(groups)
  const unreadable = groups.filter(({ key }) => !ids.includes(key))
  if (unreadable.length > 0) {
    const missing = unreadable.map(({ key }) => key).join(", ")
    return fail(
      "encryption",
      `${count(unreadable)} of ${total} stored secrets cannot be decrypted: ENCRYPTION_KEY does not have the key ${missing}`,
      "add that key to ENCRYPTION_KEY, after a comma (the key of the embedded database is in DATA_DIR/encryption.key)",
    )
  }
  const older = count(groups.filter(({ key }) => key !== ids[0]))
  return older === 0
    ? ok("encryption", `all ${total} stored secrets use the first key`)
    : warn(
        "encryption",
        `${older} of ${total} stored secrets use an older key`,
        "run gatehouse secrets reencrypt, and remove the old key when it says so",
      )
})

/** Secrets of each kind that a start looks at. */
const sample = 100

/**
 * Warns when none of the keys has encrypted any of the first stored secrets: the service starts with the key of another
 * database, and every delivery would fail. Never fails, and reads a few pages.
 */
export const warnOfOtherKey = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { keyIds } = yield* Cipher
  const groups = yield* sql<{ readonly key: string }>`
    SELECT DISTINCT split_part(secret, '.', 2) AS key FROM (
      (SELECT secret FROM webhook_endpoints LIMIT ${sample})
      UNION ALL (SELECT secret FROM alerts LIMIT ${sample})
      UNION ALL (SELECT private_key FROM token_keys LIMIT ${sample})
      UNION ALL (SELECT private_key FROM org_signing_keys LIMIT ${sample})
    ) AS secrets WHERE secret IS NOT NULL ORDER BY 1`
  if (groups.length === 0 || groups.some(({ key }) => keyIds.includes(key))) return
  yield* Effect.logWarning(
    `ENCRYPTION_KEY decrypts none of the stored secrets, which were encrypted with the key ${groups.map(({ key }) => key).join(", ")}. Add that key to ENCRYPTION_KEY, after a comma; gatehouse doctor counts the secrets`,
  )
}).pipe(Effect.ignore)
