import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { keyId } from "../crypto/Cipher.ts"
import { fail, ok, warn } from "./Check.ts"

/** The secrets that may yet be needed, by the key that they were encrypted with. */
const stored = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ key: string; secrets: number }>`
    SELECT split_part(secret, '.', 2) AS key, count(*)::int AS secrets FROM (
      SELECT secret FROM webhook_endpoints
      UNION ALL SELECT previous_secret FROM webhook_endpoints WHERE previous_secret_until > now()
      UNION ALL SELECT callback_secret FROM job_schedules
      UNION ALL SELECT callback_secret FROM jobs WHERE status = 'queued'
      UNION ALL SELECT callback_secret FROM jobs WHERE status = 'running'
    ) AS secrets
    WHERE secret IS NOT NULL GROUP BY 1 ORDER BY 1`,
)

/** Whether every stored secret's key is among those that are given. */
export const checkSecrets = Effect.fnUntraced(function* (keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>) {
  const known = new Set(keys.map((key) => keyId(Redacted.value(key))))
  const groups = yield* stored
  const total = groups.reduce((sum, { secrets }) => sum + secrets, 0)
  const lost = groups.filter(({ key }) => !known.has(key))
  if (lost.length === 0) {
    const current = keys[0] === undefined ? undefined : keyId(Redacted.value(keys[0]))
    const older = groups.filter(({ key }) => key !== current).reduce((sum, { secrets }) => sum + secrets, 0)
    return older === 0
      ? ok("encryption", `all ${total} stored secrets can be read`)
      : warn(
          "encryption",
          `${older} of ${total} stored secrets are under an older key`,
          "run gatehouse secrets reencrypt, and take the old key away when it says so",
        )
  }
  const unreadable = lost.reduce((sum, { secrets }) => sum + secrets, 0)
  return fail(
    "encryption",
    `${unreadable} of ${total} stored secrets cannot be read: they were encrypted with the key ${lost.map(({ key }) => key).join(", ")}, which is not given`,
    "add that key to ENCRYPTION_KEY, after a comma (the embedded database's own is in DATA_DIR/encryption.key)",
  )
})
