import { DateTime, Effect, Option, Schema, SchemaGetter, SchemaIssue } from "effect"

/**
 * Text as PostgreSQL can keep it: no NUL, no lone surrogate.
 */
export const Text = Schema.String.check(
  Schema.makeFilter((text: string) => !text.includes("\0") && text.isWellFormed(), {
    expected: "text without NUL characters or lone surrogates",
  }),
)

/** Text of at least one character: names, labels and identifiers as they arrive. */
export const NonEmptyText = Text.check(Schema.isMinLength(1, { expected: "at least 1 character" }))

/** The id of a resource as a caller sends it: any text, for an id that nobody has is a 404 and not a 400. */
export const Id = NonEmptyText.annotate({ description: "A ULID." })

const isoWithZone = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})$/

/** A moment: ISO 8601 with a zone when it comes in, UTC with milliseconds when it goes out. */
export const Timestamp = Schema.String.annotate({
  expected: "an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z",
  format: "date-time",
  examples: ["2026-11-20T17:00:00.000Z"],
}).pipe(
  Schema.decodeTo(Schema.DateTimeUtc, {
    decode: SchemaGetter.transformEffect((text: string, options) => {
      const time = isoWithZone.test(text) ? DateTime.make(text) : Option.none()
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
