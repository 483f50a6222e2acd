import { DateTime, Effect, Schema, SchemaGetter } from "effect"
import type { SqlClient } from "effect/sql"
import type { OrgScope } from "../../domain/Caller.ts"
import type { Page } from "../../domain/Page.ts"

/** The tenant's condition of a WHERE: rows of the scope's org, or of every org. */
export const inScope = (sql: SqlClient.SqlClient, scope: OrgScope, column = "org_id") =>
  scope._tag === "EveryOrg" ? sql.literal("true") : sql`${sql(column)} = ${scope.orgId}`

/** The one org of a scope as a parameter: null is every org. */
export const orgOf = (scope: OrgScope) => (scope._tag === "EveryOrg" ? null : scope.orgId)

/** The page's condition of a WHERE, for lists in the order of their ids. */
export const afterCursor = (sql: SqlClient.SqlClient, page: Page, order: "oldest" | "newest" = "oldest") => {
  if (page.cursor === undefined) return sql.literal("true")
  return order === "oldest" ? sql`id > ${page.cursor}` : sql`id < ${page.cursor}`
}

/** Reads rows by a schema; a row that does not fit is a fault of ours, not the caller's. To be made once: it compiles. */
export const decodeRows = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row))
  return Effect.flatMap((rows: ReadonlyArray<unknown>) => Effect.orDie(decode(rows)))
}

/** A time as a parameter. */
export const date = DateTime.toDateUtc
export const dateOrNull = (time: DateTime.Utc | null) => (time === null ? null : DateTime.toDateUtc(time))

/** Column of a time in a row's schema. `Schema.DateTimeUtcFromDate` makes each twice, in an effect of its own. */
export const Time = Schema.Date.pipe(
  Schema.decodeTo(Schema.DateTimeUtc, {
    decode: SchemaGetter.transform(DateTime.fromDateUnsafe),
    encode: SchemaGetter.transform(DateTime.toDateUtc),
  }),
)

/** A JSON value as it is kept: as text, byte for byte, for jsonb refuses some strings that JSON allows. */
export const toJsonText = (value: unknown) => (value === null || value === undefined ? null : JSON.stringify(value))
/** Column of such text in a row's schema. */
export const JsonText = Schema.NullOr(Schema.String).pipe(
  Schema.decodeTo(Schema.Unknown, {
    decode: SchemaGetter.transform((text: string | null): unknown => (text === null ? null : JSON.parse(text))),
    encode: SchemaGetter.transform(toJsonText),
  }),
)
