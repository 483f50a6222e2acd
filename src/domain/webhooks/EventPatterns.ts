import { Schema } from "effect"
import { atMost, Text } from "../Schemas.ts"
import { type ServiceEventType, serviceEventTypes } from "../ServiceEvent.ts"

const segment = "[A-Za-z0-9_-]+"
// With the flag u, the patterns are also in the OpenAPI document.
export const typeForm = new RegExp(`^${segment}(\\.${segment})*$`, "u")
const expectedType = "segments of letters, digits, _ and - joined by full stops, as in invoice.paid"
const patternForm = new RegExp(`^(\\*|${segment}(\\.${segment})*(\\.\\*)?)$`, "u")
/** The maximum length of an event type, in characters. It also limits the number of its topics to 65. */
export const maxTypeLength = 128
/** The patterns that an endpoint may have. */
const maxPatterns = 50

const firstWord = (type: string) => type.split(".", 1)[0]!
const serviceWords: ReadonlySet<string> = new Set(serviceEventTypes.map(firstWord))
/** The first words of the types that nobody else may publish: of jobs, and of the service's own events. */
export const reservedWords: ReadonlySet<string> = new Set(["job", ...serviceWords])
const serviceTypeSet: ReadonlySet<string> = new Set(serviceEventTypes)
/** The types of the events of finished jobs. */
const jobEventTypes: ReadonlySet<string> = new Set(["job.completed", "job.failed"])

/** Whether a type is one of the service's own. */
export const isServiceType = (type: string): type is ServiceEventType => serviceTypeSet.has(type)

/** Whether an event of this type is the service's own: its first word is reserved. */
export const isServiceEvent = (type: string) => serviceWords.has(firstWord(type))

/** Whether nobody else may publish an event of this type. */
export const isReserved = (type: string) => reservedWords.has(firstWord(type))

/** The type of an event of the user's own. */
export const EventType = Schema.String.check(
  Schema.isPattern(typeForm, { expected: expectedType }),
  Schema.isMaxLength(maxTypeLength, { expected: `at most ${maxTypeLength} characters` }),
  Schema.makeFilter((type: string) => !isReserved(type), {
    expected: `a type of your own: ${[...reservedWords].join(", ")} are first words of the service`,
    toJsonSchema: () => [{}, true],
  }),
).annotate({
  description:
    `The type: segments of letters, digits, _ and - joined by full stops, at most ${maxTypeLength} characters. The first ` +
    `words ${[...reservedWords].join(", ")} are the service's.`,
  examples: ["invoice.paid"],
})

/** Whether an event of this type exists: a job's, one of the service's own, or one of the user's. */
const canExist = (type: string) => {
  if (firstWord(type) === "job") return jobEventTypes.has(type)
  return !isServiceEvent(type) || isServiceType(type)
}

/** The type of a test event: any type that an event may have. */
export const TestEventType = Schema.String.check(
  Schema.isPattern(typeForm, { expected: expectedType }),
  Schema.isMaxLength(maxTypeLength, { expected: `at most ${maxTypeLength} characters` }),
  Schema.makeFilter(canExist, {
    expected: `a type of your own, or one of ${[...jobEventTypes, ...serviceEventTypes].join(", ")}`,
    toJsonSchema: () => [{}, true],
  }),
).annotate({
  description:
    "The type of the event. Default: the first that the endpoint's event_types name, with test in place of *, as in " +
    "invoice.test; job.completed when they name none.",
  examples: ["invoice.paid"],
})

/** The type of the test event of an endpoint with these patterns. */
export const testTypeOf = (patterns: ReadonlyArray<string> | null): string => {
  const first = (patterns ?? defaultPatterns).find((pattern) => pattern !== "*") ?? "job.*"
  const type = first.replace(/\*$/, "test")
  if (canExist(type)) return type
  return isServiceEvent(type)
    ? serviceEventTypes.find((known) => firstWord(known) === firstWord(type))!
    : "job.completed"
}

/** The type by which a list selects events. A type in no event selects nothing. */
export const SelectedEventType = Text.check(
  atMost(255),
  Schema.isPattern(/^[^*]*$/u, { expected: "an exact event type, such as invoice.paid: a list takes no patterns" }),
)

/** Whether a pattern can match: with a first word of the service it is a type of the service, or `key.*`. */
const canMatch = (pattern: string) => canExist(pattern) || pattern === `${firstWord(pattern)}.*`

const EventPattern = Schema.String.check(
  Schema.isPattern(patternForm, { expected: "an event type, a pattern such as invoice.*, or *" }),
  Schema.isMaxLength(maxTypeLength, { expected: `at most ${maxTypeLength} characters` }),
  Schema.makeFilter(canMatch, {
    expected: `one of the service's types (${[...jobEventTypes, ...serviceEventTypes].join(", ")}) or a first word of them, such as key.*`,
    toJsonSchema: () => [{}, true],
  }),
)

/** Which events an endpoint receives. */
export const EventPatterns = Schema.Array(EventPattern)
  .check(
    Schema.isMinLength(1, { expected: "at least 1 pattern" }),
    Schema.isMaxLength(maxPatterns, { expected: `at most ${maxPatterns} patterns` }),
  )
  .annotate({
    description:
      "Which events the endpoint receives: exact types, or patterns. invoice.* is everything below invoice, and * is every " +
      "event except the service's own, which need their type or their first word: key.created, key.*. null: as *.",
    examples: [["invoice.*", "job.failed"]],
  })

/** Names that narrow the receivers of an event, such as the ids of a customer's projects. */
export const PublishedChannels = Schema.Array(
  Schema.String.check(
    Schema.isPattern(/^[A-Za-z0-9_.:-]{1,128}$/u, {
      expected: "1 to 128 letters, digits, _, -, full stops and colons, as in project_42",
    }),
  ),
).check(Schema.isMaxLength(10, { expected: "at most 10 channels" }))

/** The channels of an endpoint that has some. */
export const Channels = PublishedChannels.check(Schema.isMinLength(1, { expected: "at least 1 channel" }))

/** The patterns of an endpoint without `event_types`. */
export const defaultPatterns: ReadonlyArray<string> = ["*"]

/**
 * All patterns that match an event type: `invoice.paid.eu` has itself, `invoice.paid.*`, `invoice.*` and `*`. An event
 * of the service's own has no `*`. An endpoint receives an event if it has one of the event's topics as a pattern.
 */
export const topicsOf = (type: string): ReadonlyArray<string> => {
  const segments = type.split(".")
  const below = segments.slice(1).map((_, n) => `${segments.slice(0, n + 1).join(".")}.*`)
  return [type, ...below.toReversed(), ...(isServiceEvent(type) ? [] : ["*"])]
}

/**
 * Whether an endpoint with these patterns and channels receives an event with these topics. SQL does the same with
 * `&&`.
 */
export const receives = (
  patterns: ReadonlyArray<string> | null,
  topics: ReadonlyArray<string>,
  channels: ReadonlyArray<string> | null = null,
  published: ReadonlyArray<string> = [],
) =>
  (patterns ?? defaultPatterns).some((pattern) => topics.includes(pattern)) &&
  (channels === null || channels.some((channel) => published.includes(channel)))

/** The fields of a job that decide who receives its event. */
interface Routing {
  readonly callback_url: string | null
  readonly hasCallbackSecret: boolean
  readonly skip_callbacks: boolean
}

/** An endpoint of the org whose patterns match the event. */
export interface Candidate {
  readonly id: string
  readonly active: boolean
}

/** A receiver of an event, and the first state of its delivery. */
export interface Receiver {
  /** `null` for the job's callback. */
  readonly endpointId: string | null
  readonly state: "pending" | "skipped"
}

/** The first state of a delivery to an active, or to an inactive endpoint. */
export const firstState = (isActive: boolean): Receiver["state"] => (isActive ? "pending" : "skipped")

/** Returns all endpoints whose patterns match as receivers. The delivery to an inactive endpoint is `skipped`. */
export const endpointReceivers = (endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> =>
  endpoints.map(({ id, active }) => ({ endpointId: id, state: firstState(active) }))

/**
 * The receivers of a finished job's event: nobody for a job with `skip_callbacks`; else only the callback when the job
 * has its URL and its secret; else the org's endpoints.
 */
export const receivers = (job: Routing, endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> => {
  if (job.skip_callbacks) return []
  if (job.callback_url !== null && job.hasCallbackSecret) return [{ endpointId: null, state: "pending" }]
  return endpointReceivers(endpoints)
}
