import { Context, DateTime, Effect, Layer, Schema } from "effect"
import { ApiKeyRepository, keyNotFound } from "./ApiKeyRepository.ts"
import { hourMillis, KeyUsageRepository } from "./KeyUsageCollector.ts"
import { InvalidRequest, type Forbidden, type NotFound, type Unauthorized, type Unavailable } from "../Errors.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { type CurrentPrincipal, requireOrg } from "../Principal.ts"
import { RetentionDays } from "../Retention.ts"
import { Timestamp } from "../Schemas.ts"

/** The query of usage. */
export const usageQuery = {
  from: Schema.optionalKey(Timestamp).annotate({
    description: "The start; rounded down to the start of its interval. Absent: 24 hours, the current one included.",
    examples: [DateTime.makeUnsafe("2026-11-20T00:00:00.000Z")],
  }),
  to: Schema.optionalKey(Timestamp).annotate({
    description: "The end, which is not included. Absent: now.",
    examples: [DateTime.makeUnsafe("2026-11-21T00:00:00.000Z")],
  }),
  every: Schema.optionalKey(Schema.Literals(["hour", "day"])).annotate({
    description: "The length of an interval, in UTC. Absent: hour.",
    examples: ["hour"],
  }),
}
export interface UsageQuery {
  readonly from?: DateTime.Utc
  readonly to?: DateTime.Utc
  readonly every?: "hour" | "day"
}

const count = (description: string, example: number) => Schema.Int.annotate({ description, examples: [example] })

/** The validations in one interval. */
export const UsageInterval = Schema.Struct({
  at: Timestamp.annotate({
    description: "The start of the interval.",
    examples: [DateTime.makeUnsafe("2026-11-20T17:00:00.000Z")],
  }),
  valid: count("Validations that were valid.", 1204),
  forbidden: count("Validations that needed a permission that the key does not have.", 3),
  limited: count("Validations above the rate limit or without credits.", 12),
  cost: count("The sum of the costs of valid validations.", 48_160),
}).annotate({ identifier: "UsageInterval" })
export type UsageInterval = typeof UsageInterval.Type

const maxIntervals = 1_000
const hoursOf = { hour: 1, day: 24 } as const

/** The hours of a query: whole intervals, the last of which may be cut by `to`. */
const intervalOf = Effect.fnUntraced(function* ({ every = "hour", from, to }: UsageQuery) {
  const hours = hoursOf[every]
  const millis = hours * hourMillis
  // Now belongs to the current interval.
  const until = to === undefined ? DateTime.toEpochMillis(yield* DateTime.now) + 1 : DateTime.toEpochMillis(to)
  // The 24 hours that end with the current one.
  const since = from === undefined ? until - 1 - 23 * hourMillis : DateTime.toEpochMillis(from)
  const first = Math.floor(since / millis)
  const end = Math.ceil(until / millis)
  if (until <= since) return yield* new InvalidRequest({ error: "to must be after from." })
  if (end - first > maxIntervals) {
    return yield* new InvalidRequest({
      error: `The range has more than ${maxIntervals.toLocaleString("en")} intervals: use a longer every, or a shorter range.`,
    })
  }
  return { first, end, hours, from: first * hours, to: end * hours }
})

type Refused = Unauthorized | Forbidden | Unavailable
type Answer<E> = Effect.Effect<{ readonly usage: ReadonlyArray<UsageInterval> }, E, CurrentPrincipal>

const batchSize = 5_000

/** The usage of keys: validations by key and interval. */
export class KeyUsageReport extends Context.Service<
  KeyUsageReport,
  {
    readonly ofKey: (orgId: string, keyId: string, query: UsageQuery) => Answer<InvalidRequest | NotFound | Refused>
    /** All keys of an org together, also those that were deleted. */
    readonly ofOrg: (orgId: string, query: UsageQuery) => Answer<InvalidRequest | NotFound | Refused>
    /** Removes the usage that is older than the retention, batch by batch. Returns the number of removed hours. */
    readonly removeOld: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/KeyUsageReport") {
  static readonly layer = Layer.effect(
    KeyUsageReport,
    Effect.gen(function* () {
      const usages = yield* KeyUsageRepository
      const keys = yield* ApiKeyRepository
      const orgs = yield* OrgRepository
      const days = yield* RetentionDays

      const read = Effect.fnUntraced(function* (orgId: string, keyId: string | undefined, query: UsageQuery) {
        const { end, first, from, hours, to } = yield* intervalOf(query)
        const found = yield* usages.find(orgId, keyId, { from, to, every: hours })
        const byHour = new Map(found.map((one) => [one.hour, one]))
        const usage = Array.from({ length: end - first }, (_, n): UsageInterval => {
          const hour = (first + n) * hours
          const { cost = 0, forbidden = 0, limited = 0, valid = 0 } = byHour.get(hour) ?? {}
          return { at: DateTime.makeUnsafe(hour * hourMillis), valid, forbidden, limited, cost }
        })
        return { found: found.length > 0, usage }
      })

      const ofKey = Effect.fn("KeyUsageReport.ofKey")(function* (orgId: string, keyId: string, query: UsageQuery) {
        yield* requireOrg(orgId)
        const { usage } = yield* read(orgId, keyId, query)
        if (!(yield* keys.exists(orgId, keyId))) return yield* keyNotFound()
        return { usage }
      })

      const ofOrg = Effect.fn("KeyUsageReport.ofOrg")(function* (orgId: string, query: UsageQuery) {
        yield* requireOrg(orgId)
        const { found, usage } = yield* read(orgId, undefined, query)
        if (!found) yield* orgs.find(orgId)
        return { usage }
      })

      const removeOld = Effect.gen(function* () {
        if (days === undefined) return 0
        const before = Math.floor(DateTime.toEpochMillis(DateTime.subtract(yield* DateTime.now, { days })) / hourMillis)
        let total = 0
        while (true) {
          const removed = yield* usages.removeOld(before, batchSize)
          total += removed
          if (removed < batchSize) return total
          yield* Effect.sleep("200 millis")
        }
      }).pipe(Effect.withSpan("KeyUsageReport.removeOld"))

      return KeyUsageReport.of({ ofKey, ofOrg, removeOld })
    }),
  )
}
