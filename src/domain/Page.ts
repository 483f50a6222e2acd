import { Effect, Schema } from "effect"
import { Name, Text, whole } from "./Schemas.ts"

// With the flag u, the pattern is also in the OpenAPI document.
const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/u

/** The items of a page if the request does not say. */
const defaultPageLimit = 50

/** The query fields of a list. */
export const pageQuery = {
  limit: whole(1, 100)
    .annotateKey({
      description: `The maximum number of items, 1 to 100. Default: ${defaultPageLimit}. A page also ends after 4 MiB of text.`,
    })
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(defaultPageLimit))),
  cursor: Schema.optionalKey(
    Text.check(Schema.isPattern(ulid, { expected: "the cursor of an earlier answer" })).annotate({
      description: "The next cursor of the previous page. Absent: the first page.",
      examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
    }),
  ),
}

/** The items that a list of a small collection returns at most. */
const maxWholeListItems = 1000

/** The fields of a list that returns the whole collection by default. */
export const wholeListFields = {
  limit: Schema.optionalKey(whole(1, maxWholeListItems)).annotate({
    description: `The maximum number of items, 1 to ${maxWholeListItems}. Default: ${maxWholeListItems}.`,
    examples: [100],
  }),
  cursor: pageQuery.cursor,
}

/** The request of such a list: its page, or no body. */
export type WholeList = Partial<Page> | undefined

export const wholeListPage = (asked: WholeList): Page => ({ limit: maxWholeListItems, ...asked })

/** The order of a list by the time when its items were made. */
export type Order = "oldest" | "newest"

/** The order and the text of a list that people search. */
export const searchQuery = {
  order: Schema.optionalKey(
    Schema.Literals(["oldest", "newest"]).annotate({
      description: "Which items are first. Default: oldest. A cursor is for the order that it came from.",
      examples: ["newest"],
    }),
  ),
  text: Schema.optionalKey(
    Name.annotate({
      description: "A text that the items have, in any case of letters: a part of what the operation says.",
      examples: ["acme"],
    }),
  ),
}

/** What `searchQuery` asks for. */
export interface Search {
  readonly order?: Order | undefined
  readonly text?: string | undefined
}

/**
 * Rows that a page looks at when a filter has no index. Such a page can have fewer items than its limit, and even none,
 * while others follow.
 */
export const maxFilteredRows = 2_000

/** The request of a page: `limit` rows after the row with the id `cursor`, in the order of the list. */
export interface Page {
  readonly limit: number
  readonly cursor?: string | undefined
}

/** The cursor of the next page: the id of the last item. */
export const NextCursor = Schema.NullOr(Schema.String).annotate({
  description: "The cursor of the next page. null: this is the last page.",
  examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9T"],
})

/** The next cursor of a list that returns the whole collection by default. */
export const NextCursorIfMore = Schema.optionalKey(Schema.String).annotate({
  description: "The cursor of the next page. Absent: this is the last page.",
})

/** The text of a page, in bytes. A single row may be longer. */
export const maxPageBytes = 4 * 1024 * 1024

/** A number of rows, or a lower bound of it when `isAll` is false. */
export interface Counted {
  readonly count: number
  readonly isAll: boolean
}

/** The rows of a page. It ends at the limit or at `maxPageBytes`, and has at least one row when there is one. */
export interface Found<A> {
  readonly items: ReadonlyArray<A>
  readonly hasMore: boolean
  /** The id of the last row that the page has looked at, when it looked at `maxFilteredRows`. */
  readonly seenTo?: string
}

/** Makes a page of up to `limit + 1` rows: the extra row only shows that there are more. */
export const cutRows = <A>(rows: ReadonlyArray<A>, limit: number): Found<A> => ({
  items: rows.slice(0, limit),
  hasMore: rows.length > limit,
})

/** The id of the last row, or of the last that was looked at; `null` when there are no more rows. */
export const nextCursor = <A>({ hasMore, items, seenTo }: Found<A>, id: (row: A) => string) => {
  const last = items.at(-1)
  return hasMore && last !== undefined ? id(last) : (seenTo ?? null)
}

/** `nextCursor` as a field that is absent on the last page. */
export const nextCursorIfMore = <A>(found: Found<A>, id: (row: A) => string) => {
  const next_cursor = nextCursor(found, id)
  return next_cursor === null ? {} : { next_cursor }
}
