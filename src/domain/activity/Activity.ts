import { DateTime, Effect, Schema } from "effect"
import { EndpointId, howMany, Id, OrgId, time, Timestamp } from "../Schemas.ts"

/** What is counted, with its outcomes. */
export const outcomesOf = {
  deliveries: ["delivered", "retried", "failed"],
  validations: ["valid", "invalid", "forbidden", "limited", "unavailable"],
  jobs: ["completed", "failed", "canceled"],
} as const
export type ActivityKind = keyof typeof outcomesOf
export type ActivityOutcome = (typeof outcomesOf)[ActivityKind][number]

export const Every = Schema.Literals(["minute", "hour", "day"]).annotate({
  description: "The length of an interval. Intervals begin at full minutes, hours and days in UTC.",
  examples: ["minute"],
})
export type Every = typeof Every.Type

/** The length of an interval in milliseconds. */
const millisOf: Record<Every, number> = { minute: 60_000, hour: 3_600_000, day: 86_400_000 }

/** The start of the interval that a time is in. */
export const startOf = (every: Every, millis: number) => Math.floor(millis / millisOf[every]) * millisOf[every]

const count = (description: string) => Schema.Int.annotate({ description, examples: [12] })
const at = time("The start of the interval.")

/** What happened, by interval, and the state of the queue now. */
export const Overview = Schema.Struct({
  orgId: Schema.NullOr(Id).annotate({ description: "null: every org.", examples: [null] }),
  every: Every,
  from: time("The start of the range."),
  to: time("The end of the range, not included."),
  deliveries: Schema.Array(
    Schema.Struct({
      at,
      delivered: count("Attempts that delivered."),
      retried: count("Attempts that failed, and whose delivery is sent again."),
      failed: count("Attempts that failed, and after which no other follows."),
    }),
  ).annotate({
    description:
      "Attempts by what they meant for their delivery: delivered; retried, when it is sent again later; failed, when no attempt " +
      "is left or the endpoint was deactivated. Written every five seconds; a process that crashes loses the last ones.",
  }),
  validations: Schema.Array(
    Schema.Struct({
      at,
      valid: count("Validations of a valid key."),
      invalid: count("Validations of a key that is not valid."),
      forbidden: count("Validations refused for a missing permission, or for the address."),
      limited: count("Validations above the rate limit, or without credits."),
      unavailable: count("Validations that could not be answered."),
    }),
  ).annotate({
    description: "Validations of keys. An invalid key belongs to no org, so it is counted for every org only.",
  }),
  jobs: Schema.Array(
    Schema.Struct({
      at,
      completed: count("Jobs that were completed."),
      failed: count("Jobs that failed."),
      canceled: count("Jobs that were canceled."),
    }),
  ).annotate({ description: "Finished jobs by interval." }),
  backlog: Schema.Int.annotate({
    description: "Deliveries that are due and not in flight. Counted up to 10,000.",
    examples: [0],
  }),
  oldestDueAt: Schema.NullOr(Timestamp).annotate({
    description: "Since when the delivery that waits longest is due. null: none is due.",
  }),
  sweeps: Schema.Int.annotate({
    description: "Open background changes of many rows. Counted up to 1,000.",
    examples: [0],
  }),
  replicas: Schema.Int.annotate({ description: "Processes that were seen in the last minute.", examples: [2] }),
}).annotate({ identifier: "Overview" })
export interface Overview extends Schema.Schema.Type<typeof Overview> {}

/** The range and the intervals of an overview. */
export const overviewQuery = {
  from: Schema.optionalKey(
    time("The start of the range. Default: an hour (by minute), a day (by hour) or 30 days (by day) before its end."),
  ),
  to: Schema.optionalKey(time("The end of the range, not included. Default: now.")),
  every: Every.pipe(Schema.withDecodingDefaultKey(Effect.succeed("minute" as const))),
  orgId: Schema.optionalKey(Id).annotate({ description: "Default: the org of the key; the administrator: every org." }),
}

/** An endpoint with failed attempts. */
export const FailingEndpoint = Schema.Struct({
  endpointId: EndpointId,
  orgId: OrgId,
  host: Schema.String.annotate({ description: "The host of its URL.", examples: ["hooks.example.com"] }),
  path: Schema.String.annotate({ description: "The path of its URL, without the query.", examples: ["/in"] }),
  description: Schema.NullOr(Schema.String).annotate({ description: "What it is called.", examples: ["Billing"] }),
  active: Schema.Boolean.annotate({ description: "Whether the endpoint receives deliveries." }),
  failedAttempts: Schema.Int.annotate({
    description: "How many of its attempts have failed since the start of the range.",
    examples: [42],
  }),
  failingSince: Schema.NullOr(Timestamp).annotate({
    description: "Since when every attempt has failed. null: its last attempt succeeded.",
  }),
  deactivatedAt: Schema.NullOr(Timestamp).annotate({
    description: "When the endpoint was deactivated. null: it is active.",
  }),
  deactivatedReason: Schema.NullOr(Schema.String).annotate({
    description: "Why the endpoint was deactivated. null: it is active.",
    examples: [null],
  }),
  lastFailureAt: time("When an attempt failed last."),
  lastStatus: Schema.NullOr(Schema.Int).annotate({
    description: "The status of the last failed attempt. null: there was no answer.",
    examples: [503],
  }),
  lastFailure: Schema.NullOr(Schema.String).annotate({
    description: "Why there was no answer, such as timeout. null: there was one.",
    examples: [null],
  }),
}).annotate({ identifier: "FailingEndpoint" })
export interface FailingEndpoint extends Schema.Schema.Type<typeof FailingEndpoint> {}

/** Upper boundaries of the durations of attempts that are counted for an endpoint, in milliseconds. */
const attemptMillis = [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000]

/** The place of a duration in the histogram of an endpoint; the last is for all that are longer. */
export const bucketOf = (millis: number) => {
  const place = attemptMillis.findIndex((boundary) => millis <= boundary)
  return place < 0 ? attemptMillis.length : place
}

/** Statuses that are counted by themselves. Others count by their class, so that no receiver makes hundreds of rows. */
const commonStatuses = new Set([400, 401, 403, 404, 405, 408, 409, 410, 413, 422, 429, 500, 501, 502, 503, 504])

/** `""`: the attempt delivered. A status, its class (`4xx`), or the kind of a failure without a response. */
export type CountedCause = string & { readonly CountedCause: unique symbol }

/** What an attempt counts as. */
export const countedCause = (isDelivered: boolean, status: number | null, failure: string | null) => {
  const text = commonStatuses.has(status ?? 0) ? String(status) : `${Math.floor((status ?? 0) / 100)}xx`
  return (isDelivered ? "" : (failure ?? text)) as CountedCause
}

/**
 * A quantile of a histogram, in the unit of its boundaries. Assumes that values are spread evenly in a bucket, as
 * Prometheus does; a value above the last finite boundary counts as that boundary. `null`: nothing was counted.
 */
export const quantile = (
  hits: ReadonlyArray<readonly [boundary: number, count: number]>,
  share: number,
): number | null => {
  const total = hits.reduce((sum, [, count]) => sum + count, 0)
  if (total === 0) return null
  let [below, rest] = [0, share * total]
  for (const [boundary, count] of hits.toSorted(([a], [b]) => a - b)) {
    if (boundary === Number.POSITIVE_INFINITY) break
    if (rest <= count && count > 0) return below + ((boundary - below) * rest) / count
    rest -= count
    below = boundary
  }
  return below
}

/** What the attempts of an endpoint ended with in a range that ends now. */
export const EndpointHealth = Schema.Struct({
  since: time("The start of the range: of its hour, or of its day in UTC."),
  attempts: howMany("Attempts since then. Written every five seconds.", 200),
  delivered: howMany("Those of them that delivered.", 180),
  p95_ms: Schema.NullOr(Schema.Int).annotate({
    description:
      "The 95th percentile of the time until the response, in milliseconds, estimated from a histogram. null: there was no response.",
    examples: [420],
  }),
  causes: Schema.Array(
    Schema.Struct({
      cause: Schema.String.annotate({
        description: "The status, the class of a rare status such as 4xx, or the kind of failure such as timeout.",
        examples: ["503"],
      }),
      attempts: howMany("Attempts that ended with it.", 20),
    }),
  ).annotate({ description: "What the failed attempts ended with, the most frequent first." }),
}).annotate({ identifier: "EndpointHealth" })
export interface EndpointHealth extends Schema.Schema.Type<typeof EndpointHealth> {}

/** The ranges of the health of an endpoint: 24 hours, and 7 and 30 days. */
export const healthRanges = (now: DateTime.Utc) =>
  [
    ["hour", 1],
    ["day", 7],
    ["day", 30],
  ].map(([every, days]) => ({
    every: every as "hour" | "day",
    since: DateTime.makeUnsafe(
      startOf(every as Every, DateTime.subtract(now, { days: days as number }).epochMilliseconds),
    ),
  }))

/** The health of an endpoint in a range. */
export const healthOf = (
  since: DateTime.Utc,
  counted: ReadonlyArray<{ readonly cause: string; readonly bucket: number; readonly count: number }>,
): EndpointHealth => {
  const causes = new Map<string, number>()
  const hits = new Map<number, number>()
  for (const { bucket, cause, count } of counted) {
    causes.set(cause, (causes.get(cause) ?? 0) + count)
    const boundary = attemptMillis[bucket] ?? Number.POSITIVE_INFINITY
    if (/^(\dxx|\d{3})?$/.test(cause)) hits.set(boundary, (hits.get(boundary) ?? 0) + count)
  }
  const delivered = causes.get("") ?? 0
  causes.delete("")
  const p95 = quantile([...hits], 0.95)
  return {
    since,
    attempts: counted.reduce((sum, { count }) => sum + count, 0),
    delivered,
    p95_ms: p95 === null ? null : Math.ceil(p95),
    causes: [...causes]
      .map(([cause, attempts]) => ({ cause, attempts }))
      .sort((a, b) => b.attempts - a.attempts || (a.cause < b.cause ? -1 : 1)),
  }
}

/** A place in a ranking: `<count>.<id>`. */
export const RankCursor = Schema.String.check(
  // With the flag u, the pattern is also in the OpenAPI document.
  Schema.isPattern(/^\d{1,15}\.[0-7][0-9A-HJKMNP-TV-Z]{25}$/u, { expected: "the cursor of an earlier answer" }),
)

/** The count and the id of a cursor; `undefined` at the first page. */
export const rankOf = (cursor: string | undefined) => {
  const [count, id] = cursor?.split(".") ?? []
  return id === undefined ? undefined : { count: Number(count), id }
}

/** The number of intervals of a range. A range of all years has a thousand million minutes. */
export const countIntervals = (every: Every, from: number, to: number): number =>
  Math.max(0, Math.ceil((to - startOf(every, from)) / millisOf[every]))

/** The intervals of a range, oldest first. */
export const intervalsOf = (every: Every, from: number, to: number): ReadonlyArray<number> => {
  const first = startOf(every, from)
  return Array.from({ length: countIntervals(every, from, to) }, (_, i) => first + i * millisOf[every])
}

/** The sum of an outcome in one interval. */
export interface CountedActivity {
  readonly at: DateTime.Utc
  readonly kind: ActivityKind
  readonly outcome: ActivityOutcome
  readonly count: number
}

/** One row for each interval; an interval in which nothing happened has zeros. */
export const fill = <K extends ActivityKind>(
  kind: K,
  intervals: ReadonlyArray<number>,
  counted: ReadonlyArray<CountedActivity>,
) => {
  const counts = new Map(
    counted
      .filter((one) => one.kind === kind)
      .map(({ at, count, outcome }) => [`${at.epochMilliseconds} ${outcome}`, count]),
  )
  return intervals.map((at) => ({
    at: DateTime.makeUnsafe(at),
    ...(Object.fromEntries(outcomesOf[kind].map((outcome) => [outcome, counts.get(`${at} ${outcome}`) ?? 0])) as Record<
      (typeof outcomesOf)[K][number],
      number
    >),
  }))
}

/** What orgs are ranked by: outcomes of one kind. */
export const measures = {
  attempts: { kind: "deliveries", outcomes: outcomesOf.deliveries },
  failedAttempts: { kind: "deliveries", outcomes: ["retried", "failed"] },
  validations: { kind: "validations", outcomes: outcomesOf.validations },
  jobs: { kind: "jobs", outcomes: outcomesOf.jobs },
} as const satisfies Readonly<
  Record<string, { readonly kind: ActivityKind; readonly outcomes: ReadonlyArray<ActivityOutcome> }>
>
export type Measure = keyof typeof measures

export const measureNames = [
  "attempts",
  "failedAttempts",
  "validations",
  "jobs",
] as const satisfies ReadonlyArray<Measure>

/** An org by what it did. */
export const ActiveOrg = Schema.Struct({
  orgId: OrgId,
  name: Schema.String.annotate({ description: "The name of the org.", examples: ["Acme"] }),
  attempts: howMany("Attempts of deliveries.", 1_200),
  failedAttempts: howMany("Those of them that failed.", 42),
  validations: howMany("Validations of its keys.", 90_000),
  jobs: howMany("Finished jobs.", 300),
}).annotate({ identifier: "ActiveOrg" })
export interface ActiveOrg extends Schema.Schema.Type<typeof ActiveOrg> {}

/** The query of the orgs that use most. */
export const measureQuery = Schema.Literals(measureNames)
  .annotate({ description: "What the orgs are ranked by. Default: attempts.", examples: ["attempts"] })
  .pipe(Schema.withDecodingDefaultKey(Effect.succeed("attempts" as const)))
