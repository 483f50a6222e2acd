import { DateTime, Effect } from "effect"
import type { SecureRandom } from "effect/crypto"
import { displayPrefix, fromRandomBytes } from "./ApiKey.ts"
import { InvalidRequest } from "../Errors.ts"

/** Makes new keys: `key` is the full key, `stored` the part that is stored. */
export const mintKey = (random: SecureRandom.SecureRandom["Service"], hashOf: (key: string) => string) => {
  const generate: Effect.Effect<string> = Effect.flatMap(random.randomBytes(48), (bytes) => {
    const key = fromRandomBytes(bytes)
    return key === undefined ? generate : Effect.succeed(key)
  })
  return Effect.zipWith(generate, random.ulid, (key, id) => ({
    key,
    stored: { id, prefix: displayPrefix(key), hash: hashOf(key) },
  }))
}

/** Refuses an expiry that is not in the future. No expiry is valid. */
export const checkExpiry = (expiresAt: DateTime.Utc | null | undefined, now: DateTime.Utc) =>
  expiresAt == null || DateTime.isGreaterThan(expiresAt, now)
    ? Effect.void
    : Effect.fail(new InvalidRequest({ error: "expiresAt must be a time in the future." }))
