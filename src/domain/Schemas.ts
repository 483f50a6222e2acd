import { DateTime, Effect, Option, Schema, SchemaGetter, SchemaIssue } from "effect"

/**
 * Text as PostgreSQL can keep it: no NUL, no lone surrogate.
 */
export const Text = Schema.String.check(
  Schema.makeFilter((text: string) => !text.includes("\0") && text.isWellFormed(), {
    expected: "text without NUL characters or lone surrogates",
    // Says nothing in JSON Schema; without this, no description of such text would be there either.
    toJsonSchema: () => [{}, true],
  }),
)

/** Text of at least one character: names, labels and identifiers as they arrive. */
export const NonEmptyText = Text.check(Schema.isMinLength(1, { expected: "at least 1 character" }))

/** What people call a key, a project or an org: 1 to 255 characters. */
export const Name = NonEmptyText.check(Schema.isMaxLength(255, { expected: "at most 255 characters" }))

/** A secret that signs webhooks: 1 to 512 characters, not only white space. */
export const SigningSecret = NonEmptyText.check(
  Schema.isMaxLength(512, { expected: "at most 512 characters" }),
  // Of an empty one is said that it is empty, and no more.
  Schema.isPattern(/^$|\S/, { expected: "text that is not only white space" }),
)

/** The id of a resource as a caller sends it: any text, for an id that nobody has is a 404 and not a 400. */
export const Id = NonEmptyText.annotate({ description: "A ULID.", examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"] })

const isoWithZone = /^(\d{4})-(\d{2})-(\d{2})T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})$/

/** ISO 8601 with a zone, on a day that the calendar has: the platform reads February 30 as March 2. */
const isMoment = (text: string) => {
  const [, year, month, day] = isoWithZone.exec(text) ?? []
  return (
    day !== undefined && new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day)
  )
}

/** Whether the time has four digits of year in UTC, too: a zone can carry it over the calendar's ends. */
const hasPlainYear = (time: DateTime.DateTime) => /^\d{4}-/.test(DateTime.formatIso(time))

/** A moment: ISO 8601 with a zone when it comes in, UTC with milliseconds when it goes out. */
export const Timestamp = Schema.String.annotate({
  expected: "an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z",
  format: "date-time",
  examples: ["2026-11-20T17:00:00.000Z"],
}).pipe(
  Schema.decodeTo(Schema.DateTimeUtc, {
    decode: SchemaGetter.transformEffect((text: string, options) => {
      const time = isMoment(text) ? Option.filter(DateTime.make(text), hasPlainYear) : Option.none()
      return Option.isSome(time)
        ? Effect.succeed(DateTime.toUtc(time.value))
        : Effect.fail(
            new SchemaIssue.InvalidValue(
              { expected: "an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z" },
              text,
              options,
            ),
          )
    }),
    encode: SchemaGetter.transform(DateTime.formatIso),
  }),
)
