import { DateTime, Effect, Schema } from "effect"
import { Id, Timestamp } from "../Schemas.ts"

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

const count = Schema.Int.annotate({ examples: [12] })
const interval = <K extends ActivityKind>(kind: K) => ({
  at: Timestamp,
  ...(Object.fromEntries(outcomesOf[kind].map((outcome) => [outcome, count])) as Record<
    (typeof outcomesOf)[K][number],
    typeof count
  >),
})

/** What happened, by interval, and the state of the queue now. */
export const Overview = Schema.Struct({
  orgId: Schema.NullOr(Id).annotate({ description: "null: every org.", examples: [null] }),
  every: Every,
  from: Timestamp,
  to: Timestamp,
  deliveries: Schema.Array(Schema.Struct(interval("deliveries"))).annotate({
    description:
      "Attempts by what they meant for their delivery: delivered; retried, when it is sent again later; failed, when no attempt " +
      "is left or the endpoint was deactivated. Written every five seconds; a process that crashes loses the last ones.",
  }),
  validations: Schema.Array(Schema.Struct(interval("validations"))).annotate({
    description: "Validations of keys. An invalid key belongs to no org, so it is counted for every org only.",
  }),
  jobs: Schema.Array(Schema.Struct(interval("jobs"))).annotate({ description: "Finished jobs." }),
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
  from: Schema.optionalKey(Timestamp).annotate({
    description:
      "The start of the range. Default: an hour (by minute), a day (by hour) or 30 days (by day) before its end.",
  }),
  to: Schema.optionalKey(Timestamp).annotate({ description: "The end of the range, not included. Default: now." }),
  every: Every.pipe(Schema.withDecodingDefaultKey(Effect.succeed("minute" as const))),
  orgId: Schema.optionalKey(Id).annotate({ description: "Default: the org of the key; the administrator: every org." }),
}

/** An endpoint with failed attempts. */
export const FailingEndpoint = Schema.Struct({
  endpointId: Id,
  orgId: Id,
  host: Schema.String.annotate({ description: "The host of its URL.", examples: ["hooks.example.com"] }),
  active: Schema.Boolean,
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
  lastFailureAt: Timestamp.annotate({ description: "When an attempt failed last." }),
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

/** The names of the measures. */
export const measureNames = [
  "attempts",
  "failedAttempts",
  "validations",
  "jobs",
] as const satisfies ReadonlyArray<Measure>

const orgCount = (description: string, example: number) => Schema.Int.annotate({ description, examples: [example] })

/** An org by what it did. */
export const ActiveOrg = Schema.Struct({
  orgId: Id,
  name: Schema.String.annotate({ examples: ["Acme"] }),
  attempts: orgCount("Attempts of deliveries.", 1_200),
  failedAttempts: orgCount("Those of them that failed.", 42),
  validations: orgCount("Validations of its keys.", 90_000),
  jobs: orgCount("Finished jobs.", 300),
}).annotate({ identifier: "ActiveOrg" })
export interface ActiveOrg extends Schema.Schema.Type<typeof ActiveOrg> {}

/** The query of the orgs that use most. */
export const measureQuery = Schema.Literals(measureNames)
  .annotate({ description: "What the orgs are ranked by. Default: attempts.", examples: ["attempts"] })
  .pipe(Schema.withDecodingDefaultKey(Effect.succeed("attempts" as const)))
