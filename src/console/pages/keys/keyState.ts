import type { Answer } from "../../client/Operations.ts"

export type Key = Answer<"keys.list">["keys"][number]

const weekMillis = 7 * 86_400_000

/** What holds for a key now: the first of these that does. */
export const keyStateOf = ({ enabled, expiresAt, leakedAt }: Key, now: number) => {
  if (leakedAt !== null) return "leaked"
  const left = expiresAt === null ? Infinity : Date.parse(expiresAt) - now
  if (left <= 0) return "expired"
  if (!enabled) return "disabled"
  return left < weekMillis ? "expiring" : "active"
}

export const isEnded = (key: Key, now: number) => ["leaked", "expired"].includes(keyStateOf(key, now))

/** "600 in 60 s". */
export const rateLimitText = ({ rateLimit }: Key) =>
  rateLimit === null
    ? undefined
    : `${rateLimit.limit.toLocaleString("en")} ${rateLimit.window === 1 ? "a second" : rateLimit.window === 60 ? "a minute" : rateLimit.window === 3_600 ? "an hour" : `in ${rateLimit.window} s`}`
