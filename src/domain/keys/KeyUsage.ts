import { Context, DateTime, Effect, Layer, Schema } from "effect"
import { InvalidRequest, type Unavailable } from "../Errors.ts"
import { requireKeys, requireOrg } from "../Principal.ts"
import { RetentionDays } from "../Retention.ts"
import { earliestTime, howMany, time } from "../Schemas.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { ApiKeyRepository } from "./ApiKeyRepository.ts"
import { removeInBatches } from "../removeInBatches.ts"

/** What validations of a key had as their outcome in an hour. */
export interface HourOfKey {
  readonly orgId: string
  readonly keyId: string
  /** Hours since 1970. */
  readonly hour: number
  readonly valid: number
  readonly forbidden: number
  readonly limited: number
  /** The sum of the costs of valid uses. */
  readonly cost: number
}

const hourMillis = 3_600_000

/** The numbers of validations by key and hour, and those of each org. */
export class KeyUsageRepository extends Context.Service<
  KeyUsageRepository,
  {
    /** Adds hours of keys, and to the hours of their orgs, in one transaction. Ignores orgs that do not exist. */
    readonly add: (hours: ReadonlyArray<HourOfKey>) => Effect.Effect<void, Unavailable>
    /**
     * The hours of a key, or of the whole org, from `from` until before `to` (hours since 1970); empty hours are
     * absent. `every` is the number of hours that are added up, from `from` on.
     */
    readonly find: (
      orgId: string,
      keyId: string | undefined,
      interval: { readonly from: number; readonly to: number; readonly every: number },
    ) => Effect.Effect<ReadonlyArray<Omit<HourOfKey, "orgId" | "keyId">>, Unavailable>
    /** Removes up to `limit` hours before `before` (hours since 1970). Returns their number. */
    readonly removeOld: (before: number, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/keys/KeyUsageRepository") {}

type Count = "valid" | "forbidden" | "limited"

/** The uses of a key since they were written last. */
interface Recent {
  readonly orgId: string
  usedAt: number
  hour: number
  valid: number
  forbidden: number
  limited: number
  cost: number
}

/** Keys whose uses one statement writes. */
const batchSize = 1_000
/** Hours of keys that wait to be written. While the database is away for longer, further hours are not counted. */
const maxHours = 200_000

const isEmpty = ({ forbidden, limited, valid }: Recent) => valid + forbidden + limited === 0

/** Writes a list in batches. What was not written when it fails goes to `keep`. */
const writeInBatches = <A>(
  all: ReadonlyArray<A>,
  write: (batch: ReadonlyArray<A>) => Effect.Effect<void, Unavailable>,
  keep: (rest: ReadonlyArray<A>) => void,
) => {
  let written = 0
  const step = Effect.gen(function* () {
    while (written < all.length) {
      const batch = all.slice(written, written + batchSize)
      yield* write(batch)
      written += batch.length
    }
  })
  // Also after an interruption: the last flush follows at shutdown.
  return Effect.onError(step, () => Effect.sync(() => keep(all.slice(written))))
}

/**
 * Collects when keys were last used and how their validations ended, and writes both in batches. A batch whose answer
 * is lost is written again, and may then count twice.
 */
export const make = (repository: ApiKeyRepository["Service"], usages: KeyUsageRepository["Service"]) => {
  let recent = new Map<string, Recent>()
  /** Counts of past hours that are not written yet, including those whose last write failed. */
  let waiting: Array<HourOfKey> = []
  /** Times of last use that could not be written, in milliseconds by key id. */
  let unwritten: ReadonlyArray<readonly [string, number]> = []

  const keepHour = (keyId: string, one: Recent) => {
    if (isEmpty(one) || waiting.length >= maxHours) return
    const { orgId, hour, valid, forbidden, limited, cost } = one
    waiting.push({ orgId, keyId, hour, valid, forbidden, limited, cost })
  }

  /** Records that a key was used. */
  const seen = ({ keyId, orgId }: { readonly keyId: string; readonly orgId: string }, at: number): Recent => {
    const known = recent.get(keyId)
    if (known !== undefined) {
      known.usedAt = at
      return known
    }
    const made = { orgId, usedAt: at, hour: 0, valid: 0, forbidden: 0, limited: 0, cost: 0 }
    recent.set(keyId, made)
    return made
  }

  /** Records the outcome of a validation. */
  const count = (
    grant: { readonly keyId: string; readonly orgId: string },
    outcome: Count,
    cost: number,
    at: number,
  ) => {
    const one = seen(grant, at)
    const hour = Math.floor(at / hourMillis)
    if (one.hour !== hour) {
      keepHour(grant.keyId, one)
      one.hour = hour
      one.valid = one.forbidden = one.limited = one.cost = 0
    }
    one[outcome]++
    one.cost += cost
  }

  const flush = Effect.suspend(() => {
    const used = recent
    recent = new Map()
    used.forEach((one, keyId) => keepHour(keyId, one))
    const hours = waiting
    waiting = []
    const times = [...new Map([...unwritten, ...[...used].map(([keyId, { usedAt }]) => [keyId, usedAt] as const)])]
    unwritten = []
    const touch = writeInBatches(
      times,
      (batch) => repository.touch(new Map(batch.map(([keyId, at]) => [keyId, DateTime.makeUnsafe(at)]))),
      (rest) => void (unwritten = rest),
    )
    const add = writeInBatches(hours, usages.add, (rest) => void (waiting = [...rest, ...waiting].slice(0, maxHours)))
    // Both, also when one of them fails.
    return Effect.flatMap(Effect.exit(touch), (touched) => Effect.andThen(add, touched))
  })

  return { seen, count, flush }
}

export const usageQuery = {
  from: Schema.optionalKey(
    time(
      "The start; rounded down to the start of its interval. Absent: 24 hours, the current one included.",
      "2026-11-20T00:00:00.000Z",
    ),
  ),
  to: Schema.optionalKey(time("The end, which is not included. Absent: now.", "2026-11-21T00:00:00.000Z")),
  every: Schema.optionalKey(Schema.Literals(["hour", "day"])).annotate({
    description: "The length of an interval, in UTC. Absent: hour.",
    examples: ["hour"],
  }),
}
interface UsageQuery {
  readonly from?: DateTime.Utc
  readonly to?: DateTime.Utc
  readonly every?: "hour" | "day"
}

/** The validations in one interval. */
export const UsageInterval = Schema.Struct({
  at: time("The start of the interval."),
  valid: howMany("Validations that were valid.", 1204),
  forbidden: howMany("Validations refused for a missing permission, or for the address.", 3),
  limited: howMany("Validations above the rate limit or without credits.", 12),
  cost: howMany("The sum of the costs of valid validations.", 48_160),
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
  const since = Math.max(
    earliestTime.epochMilliseconds,
    from === undefined ? until - 1 - 23 * hourMillis : DateTime.toEpochMillis(from),
  )
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

const reportBatchSize = 5_000

/** The usage of keys: validations by key and interval. */
export class KeyUsageReport extends Context.Service<KeyUsageReport>()("gatehouse/domain/KeyUsageReport", {
  make: Effect.gen(function* () {
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

    return {
      ofKey: Effect.fn("KeyUsageReport.ofKey")(function* (orgId: string, keyId: string, query: UsageQuery) {
        const holder = yield* requireKeys(orgId)
        yield* keys.find(orgId, keyId, holder)
        const { usage } = yield* read(orgId, keyId, query)
        return { usage }
      }),

      /** All keys of an org together, also those that were deleted. */
      ofOrg: Effect.fn("KeyUsageReport.ofOrg")(function* (orgId: string, query: UsageQuery) {
        yield* requireOrg(orgId)
        const { found, usage } = yield* read(orgId, undefined, query)
        if (!found) yield* orgs.find(orgId)
        return { usage }
      }),

      /** Removes the usage that is older than the retention, batch by batch. Returns the number of removed hours. */
      removeOld: Effect.gen(function* () {
        if (days === undefined) return 0
        const before = Math.floor(DateTime.toEpochMillis(DateTime.subtract(yield* DateTime.now, { days })) / hourMillis)
        return yield* removeInBatches(reportBatchSize, (size) => usages.removeOld(before, size))
      }).pipe(Effect.withSpan("KeyUsageReport.removeOld")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
