import { Effect, Schema } from "effect"
import { Text } from "./Schemas.ts"

const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** The query fields of every list: how many, and where the page before ended. */
export const pageQuery = {
  limit: Schema.Int.pipe(
    Schema.check(Schema.isBetween({ minimum: 1, maximum: 100 }, { expected: "a whole number from 1 to 100" })),
    Schema.annotate({ description: "How many to answer at most, 1 to 100. Default 50." }),
    Schema.withDecodingDefaultKey(Effect.succeed(50)),
  ),
  cursor: Schema.optionalKey(
    Text.check(Schema.isPattern(ulid, { expected: "the cursor of an earlier answer" })).annotate({
      description: "What the page before gave for the next one.",
      examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
    }),
  ),
}

/** What a repository is asked for: `limit` rows after (in the list's own order) the row whose id is `cursor`. */
export interface Page {
  readonly limit: number
  readonly cursor?: string | undefined
}

/** The answer's other half of a page: the last id, while there may be more. */
export const NextCursor = Schema.NullOr(Schema.String).annotate({
  description: "Send it as cursor for the next page; null at the end.",
  examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
})

/**
 * Turns up to `limit + 1` rows into a page: the extra row only tells that there is more.
 */
export const toPage = <A>(rows: ReadonlyArray<A>, limit: number, id: (row: A) => string) => {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return { items, nextCursor: rows.length > limit && last !== undefined ? id(last) : null }
}
