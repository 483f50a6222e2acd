import { DateTime, Duration } from "effect"

const base32Digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
/** How much the time of an id may differ from its delivery's `created_at`. */
const maxIdAge = Duration.hours(1)

/** A ULID begins with its time in milliseconds. */
const idAt = (millis: number) =>
  Array.from({ length: 10 }, (_, n) => base32Digits[Math.floor(Math.max(0, millis) / 32 ** (9 - n)) % 32]).join("")

/** A lower bound for the ids of deliveries that were created at `since` or later. */
export const idBefore = (since: DateTime.Utc) => idAt(DateTime.toEpochMillis(since) - Duration.toMillis(maxIdAge))

/** An upper bound for the ids of deliveries that were created before `until`. */
export const idAfter = (until: DateTime.Utc) => idAt(DateTime.toEpochMillis(until) + Duration.toMillis(maxIdAge))
