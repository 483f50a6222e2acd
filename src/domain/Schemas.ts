import { DateTime, Effect, Option, Schema, SchemaGetter, SchemaAST, SchemaIssue } from "effect"
import { isBoundedJson } from "./exactJson.ts"

/** Characters of control, of lines and of the writing direction, which would change the text around them. */
export const controlCharacters = /[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu

/** Text that PostgreSQL can store: without NUL characters and lone surrogates. */
export const Text = Schema.String.check(
  Schema.makeFilter((text: string) => !text.includes("\0") && text.isWellFormed(), {
    expected: "text without NUL characters or lone surrogates",
    // JSON Schema cannot express the rule. Without this line it would also lose the descriptions of such fields.
    toJsonSchema: () => [{}, true],
  }),
)

/** Text of at least one character, such as a name, a label or an id in a request. */
export const NonEmptyText = Text.check(Schema.isMinLength(1, { expected: "at least 1 character" }))

/** The first UTF-16 units of a text, not cut inside a pair. */
export const cut = (text: string, length: number) =>
  text.length > length ? text.slice(0, length).replace(/[\ud800-\udbff]$/, "") : text

/**
 * The largest length of a text in UTF-16 code units. Each text of a request has one, so that what is stored is bounded.
 */
export const atMost = (length: number) =>
  Schema.isMaxLength(length, { expected: `at most ${length.toLocaleString("en")} characters` })

/** A whole number in a range. Its error names both bounds. */
export const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` }))

/** How deep a JSON value may be nested. */
const maxJsonLevels = 1000

/** Any JSON value that is not nested too deep, and whose numbers all languages can read. */
export const AnyJson = Schema.declare((value): value is unknown => isBoundedJson(value, maxJsonLevels), {
  expected: "JSON of at most 1,000 levels, with numbers up to 1e308",
  toJsonSchema: () => ({}),
  // What is parsed or stored is JSON.
  toCodecJson: () => undefined,
})

const maxMetadataBytes = 4096
const encoder = new TextEncoder()

/** Whether a value is at most 4 KiB of JSON. One that is nested too deeply to be written is not. */
const isSmall = (value: object) => {
  try {
    return encoder.encode(JSON.stringify(value)).length <= maxMetadataBytes
  } catch {
    return false
  }
}

/** A JSON object of the caller. */
export const Metadata = Schema.Record(Schema.String, Schema.Unknown)
  .check(
    Schema.makeFilter(isSmall, {
      expected: "a JSON object of at most 4 KiB",
      toJsonSchema: () => [{}, true],
    }),
  )
  .annotate({ description: "A JSON object of your own, at most 4 KiB.", examples: [{ plan: "pro" }] })
export type Metadata = typeof Metadata.Type
export const NullableMetadata = Schema.NullOr(Metadata).annotate({
  description: "A JSON object of your own, at most 4 KiB. null: none.",
})

/** The name of a key, a project or an org: 1 to 255 characters. */
export const Name = NonEmptyText.check(atMost(255))

/** A secret that signs webhooks: 1 to 512 characters, not only white space. */
export const SigningSecret = NonEmptyText.check(
  atMost(512),
  // The empty text is accepted here, because the minimum length already refuses it.
  Schema.isPattern(/^$|\S/u, { expected: "text that is not only white space" }),
)

/**
 * The id of a resource in a request. Any text of at most 255 characters is valid: an unknown id is a 404, not a 400.
 */
export const Id = NonEmptyText.check(atMost(255)).annotate({ examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"] })

const idOf = (resource: string) => Id.annotate({ description: `The id of the ${resource}, a ULID.` })
export const OrgId = idOf("org")
export const ProjectId = idOf("project")
export const DeploymentId = idOf("deployment")
export const KeyId = idOf("API key")
export const AlertId = idOf("alert")
export const EndpointId = idOf("webhook endpoint")
export const EventId = idOf("event")
export const DeliveryId = idOf("delivery")
export const ResendId = idOf("resend")
export const JobId = idOf("job")
export const JobSweepId = idOf("retry or cancellation")
export const ScheduleId = idOf("schedule")

const isoWithZone = /^(\d{4})-(\d{2})-(\d{2})T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})$/

/** Whether a text is ISO 8601 with a zone and a day that exists. JavaScript reads February 30 as March 2. */
const isMoment = (text: string) => {
  const [, year, month, day] = isoWithZone.exec(text) ?? []
  return (
    day !== undefined && new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day)
  )
}

/** Whether the year has four digits in UTC: the zone can move it below 0000 or above 9999. */
const hasPlainYear = (time: DateTime.DateTime) => /^\d{4}-/.test(DateTime.formatIso(time))

/** The earliest time that a request or a response has. */
export const earliestTime = DateTime.makeUnsafe("0000-01-01T00:00:00.000Z")

/** What a time must be. */
const expectedTime = "an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z"

/** A point in time: ISO 8601 with a zone in requests, UTC with milliseconds in responses. */
export const Timestamp = Schema.String.annotate({
  expected: expectedTime,
  format: "date-time",
  examples: ["2026-11-20T17:00:00.000Z"],
}).pipe(
  Schema.decodeTo(Schema.DateTimeUtc, {
    decode: SchemaGetter.transformEffect((text: string, options) => {
      const time = isMoment(text) ? Option.filter(DateTime.make(text), hasPlainYear) : Option.none()
      return Option.isSome(time)
        ? Effect.succeed(DateTime.toUtc(time.value))
        : Effect.fail(new SchemaIssue.InvalidValue({ expected: expectedTime }, text, options))
    }),
    encode: SchemaGetter.transform(DateTime.formatIso),
  }),
)

/**
 * A time that is described on both sides: the OpenAPI document has the description of the text, and the command line
 * that of the decoded time.
 */
export const time = (description: string, example = "2026-11-20T17:00:00.000Z") =>
  Timestamp.pipe(Schema.annotateEncoded({ description, examples: [example] }), Schema.annotate({ description }))

/** The time at which something expires: its example is in the future. */
export const expiry = (description: string) => time(description, "2100-01-01T00:00:00.000Z")
export const CreatedAt = time("When it was created.")
export const UpdatedAt = time("When it was last changed.")

export const howMany = (description: string, example: number) =>
  Schema.Int.annotate({ description, examples: [example] })

/** The name of a type in schema messages, and in ours. */
const words: Record<string, string> = {
  string: "a string",
  array: "an array",
  object: "an object",
  "boolean | null": "true, false or null",
  number: "a number",
  null: "null",
  boolean: "true or false",
  "a string representing a finite number": "a number",
}

/** What a schema's message says is expected, in words: `"a" | "b"` is "one of a, b". */
const inWords = (expected: string) => {
  if (/^"\w+"( \| "\w+")+$/.test(expected)) {
    return `one of ${expected.replaceAll('"', "").replaceAll(" | ", ", ")}`
  }
  const kinds = expected.split(" | ").map((kind) => words[kind])
  return words[expected] ?? (kinds.includes(undefined) ? expected : kinds.join(" or "))
}

/** Whether a schema is of a time: a text with a format, whatever may be beside it. */
const isTime = (ast: SchemaAST.AST): boolean =>
  SchemaAST.resolveAt<string>("format")(ast) === "date-time" || (ast._tag === "Union" && ast.types.some(isTime))

/** What is wrong with a value, as a schema says it; `faultInWords` makes the end of a sentence of it. */
export const faultOf: SchemaIssue.LeafHook = (issue) => {
  if (issue._tag === "MissingKey") return "is required"
  if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "must be a JSON object"
  if (issue._tag === "InvalidType" && isTime(issue.ast)) return `must be ${expectedTime}; a number is not one`
  return SchemaIssue.defaultLeafHook(issue)
}

/** What is wrong with a value, after the name of its field. */
export const faultInWords = (message: string) =>
  message.replace(/^Expected (.*)$/s, (_, expected: string) => `must be ${inWords(expected)}`)

// With the flag u, the pattern is also in the OpenAPI document.
const keyPrefixShape = /^[a-z][a-z0-9_]{1,22}[a-z0-9]$/u
/** The prefix of new keys, for an org or a project. */
export const KeyPrefix = Text.check(
  Schema.isPattern(keyPrefixShape, {
    expected: "3 to 24 lower-case letters, digits or underscores; the first a letter, the last no underscore",
  }),
).annotate({ examples: ["acme_live"] })
