import { Effect, Schema } from "effect"
import { Text } from "./Schemas.ts"

const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** The query fields of every list: how many, and where the page before ended. */
export const pageQuery = {
  limit: Schema.Int.pipe(
    Schema.check(Schema.isBetween({ minimum: 1, maximum: 100 }, { expected: "a whole number from 1 to 100" })),
    Schema.annotate({
      description: "How many to answer at most, 1 to 100. Default 50. A page also ends after 4 MiB of text.",
    }),
    Schema.withDecodingDefaultKey(Effect.succeed(50)),
  ),
  cursor: Schema.optionalKey(
    Text.check(Schema.isPattern(ulid, { expected: "the cursor of an earlier answer" })).annotate({
      description: "What the page before gave for the next one.",
      examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
    }),
  ),
}

/** The most that a list of a small collection answers at once. */
const maxWholeList = 1000

/** The fields of a list that answers its whole collection unless it is told otherwise. */
export const wholeListFields = {
  limit: Schema.optionalKey(
    Schema.Int.check(
      Schema.isBetween({ minimum: 1, maximum: maxWholeList }, { expected: "a whole number from 1 to 1000" }),
    ),
  ).annotate({ description: "How many to answer at most, 1 to 1000. Default 1000.", examples: [100] }),
  cursor: pageQuery.cursor,
}

/** The request of such a list: its page, or no body at all. */
export type WholeList = Partial<Page> | undefined

export const wholeListPage = (asked: WholeList): Page => ({ limit: maxWholeList, ...asked })

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

/** The next cursor of such a list. */
export const NextCursorIfMore = Schema.optionalKey(Schema.String).annotate({
  description: "Only where there are more: send it as cursor for them.",
})

/** How much text a page holds, in bytes; its first row may be longer. */
export const maxPageBytes = 4 * 1024 * 1024

/** What a repository answers: rows up to the page's limit or `maxPageBytes`, whichever comes first, and at least one. */
export interface Found<A> {
  readonly items: ReadonlyArray<A>
  readonly hasMore: boolean
}

/** Cuts `limit + 1` rows: the extra row only tells that there is more. */
export const cutRows = <A>(rows: ReadonlyArray<A>, limit: number): Found<A> => ({
  items: rows.slice(0, limit),
  hasMore: rows.length > limit,
})

/** Where the next page begins: after the last row, while there are more. */
export const nextCursor = <A>({ hasMore, items }: Found<A>, id: (row: A) => string) => {
  const last = items.at(-1)
  return hasMore && last !== undefined ? id(last) : null
}

/** The same as a field, absent at the end. */
export const nextCursorIfMore = <A>(found: Found<A>, id: (row: A) => string) => {
  const next_cursor = nextCursor(found, id)
  return next_cursor === null ? {} : { next_cursor }
}
