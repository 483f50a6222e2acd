import { PgTypes } from "@effect/sql-pg"
import { DateTime, Effect, Result, Schema, SchemaGetter } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { type Found, maxFilteredRows, maxPageBytes, type Order, type Page } from "../../domain/Page.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { keepNumbers } from "../../domain/exactJson.ts"
import { StoredJson, toJsonText } from "../../domain/StoredJson.ts"

/** The tenant condition of a WHERE: rows of the scope's org, or of every org. */
export const inScope = (sql: SqlClient.SqlClient, scope: OrgScope, column = "org_id") =>
  scope._tag === "EveryOrg" ? sql.literal("true") : sql`${sql(column)} = ${scope.orgId}`

/**
 * The tenant condition of jobs and keys. The indexes of their claims and lists have the org as this expression.
 *
 * Planner (the org of jobs and keys is an expression): without statistics, as in a new or restored database, a plan
 * would choose an index that begins with the org, and read all jobs of a status to find one.
 */
export const isOfOrg = (sql: SqlClient.SqlClient, orgId: string, column = "org_id") =>
  sql`${sql.literal(column)} || '' = ${orgId}`

/**
 * SQL: the id as the last column of the indexes of lists.
 *
 * Planner (lists by an expression of the id): the primary key has the order of the column, too: a plan that was made
 * for an empty table would read the rows of all orgs through it.
 */
export const listedId = "id || ''"

/** The org of a scope as a parameter; null is every org. */
export const orgOf = (scope: OrgScope) => (scope._tag === "EveryOrg" ? null : scope.orgId)

/** The cursor condition of a WHERE, for lists in the order of their ids. */
export const afterCursor = (sql: SqlClient.SqlClient, page: Page, order: Order = "oldest", column = "id") => {
  if (page.cursor === undefined) return sql.literal("true")
  const id = sql.literal(column)
  return order === "oldest" ? sql`${id} > ${page.cursor}` : sql`${id} < ${page.cursor}`
}

export const descending = (sql: SqlClient.SqlClient, order: Order) => sql.literal(order === "oldest" ? "" : "DESC")

/**
 * Bounds what filters without an index look at.
 *
 * @param rows the table with the condition that an index fits
 * @returns the condition of the rows that a page looks at, and the last of them if there may be others
 */
export const lookedAt = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  id: Statement.Fragment,
  order: Order = "oldest",
) =>
  Effect.map(
    sql<{ readonly id: string }>`
      SELECT id FROM ${rows} ORDER BY ${id} ${descending(sql, order)} OFFSET ${maxFilteredRows - 1} LIMIT 1`,
    ([last]) =>
      last === undefined
        ? { within: sql.literal("true") }
        : {
            within: order === "oldest" ? sql`${id} <= ${last.id}` : sql`${id} >= ${last.id}`,
            seenTo: last.id,
          },
  )

/**
 * Deletes the first rows of a table without partitions; returns how many.
 *
 * Planner (the first rows are deleted by place): joined by a key, they are looked for among all rows of the table.
 *
 * @param which the condition, order, limit and locks of a SELECT of them
 */
export const deleteFirst = (sql: SqlClient.SqlClient, table: string, which: Statement.Fragment) =>
  Effect.map(
    sql`DELETE FROM ${sql(table)} WHERE ctid = ANY(ARRAY(SELECT ctid FROM ${sql(table)} WHERE ${which})) RETURNING 1`,
    (rows) => rows.length,
  )

/** Whether one of some columns has a text, in any case of letters. */
export const hasText = (sql: SqlClient.SqlClient, text: string, ...columns: ReadonlyArray<string>) =>
  sql`${sql.or(columns.map((column) => sql`strpos(lower(${sql(column)}), lower(${text})) > 0`))}`

/**
 * Selects the first rows that fit into `maxPageBytes` together, and at least one. The database neither sends the other
 * rows nor reads their long values from TOAST. Adds the column `found`: the number of rows before the cut.
 *
 * @param texts the columns whose length counts
 */
export const withinBytes = (
  sql: SqlClient.SqlClient,
  rows: Statement.Fragment,
  id: string,
  texts: ReadonlyArray<string>,
  order: Order = "oldest",
) => {
  const length = texts.map((text) => sql`coalesce(octet_length(${sql(text)}), 0)`)
  const bytes = length.reduce((sum, one) => sql`${sum} + ${one}`)
  return sql`
    SELECT * FROM (
      SELECT *, (count(*) OVER ())::int AS found,
        sum(${bytes}) OVER in_order <= ${maxPageBytes} OR row_number() OVER in_order = 1 AS fits
      FROM (${rows}) AS rows WINDOW in_order AS (ORDER BY ${sql(id)} ${descending(sql, order)})
    ) AS rows WHERE fits`
}

/**
 * The statement of a list.
 *
 * @param select a SELECT of the rows after the page's cursor, up to and including its WHERE
 * @param id its column of the id
 * @param texts its columns whose length counts
 */
export const pageOf = (
  sql: SqlClient.SqlClient,
  page: Page,
  select: Statement.Fragment,
  id: string,
  texts: ReadonlyArray<string>,
  order: Order = "oldest",
) => {
  const inOrder = sql`ORDER BY ${sql(id)} ${descending(sql, order)}`
  // The extra row shows whether there are more.
  const rows = sql`${select} ${inOrder} LIMIT ${page.limit + 1}`
  return sql`${withinBytes(sql, rows, id, texts, order)} ${inOrder} LIMIT ${page.limit}`
}

/** Decodes the rows of `pageOf` with a schema. Call it once per schema, because it compiles. */
export const decodePage = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const decode = decodeRows(row)
  return Effect.flatMap((rows: ReadonlyArray<unknown>) => {
    const [first] = rows as ReadonlyArray<{ readonly found: number }>
    const hasMore = first !== undefined && first.found > rows.length
    return Effect.map(decode(Effect.succeed(rows)), (items): Found<S["Type"]> => ({ items, hasMore }))
  })
}

/**
 * Decodes rows with a schema. Dies if a row does not match. Call it once per schema, because it compiles. `SqlSchema`
 * takes as long (14 µs for 50 rows) but also requires a schema of the request.
 */
export const decodeRows = <S extends Schema.ConstraintDecoder<unknown>>(row: S) => {
  const decode = Schema.decodeUnknownEffect(Schema.Array(row))
  return Effect.flatMap((rows: ReadonlyArray<unknown>) => Effect.orDie(decode(rows)))
}

/** A time as an SQL parameter. */
export const date = DateTime.toDateUtc
export const dateOrNull = (time: DateTime.Utc | null) => (time === null ? null : DateTime.toDateUtc(time))

/** The schema of a time column. `Schema.DateTimeUtcFromDate` makes each time twice, in an effect of its own. */
export const Time = Schema.Date.pipe(
  Schema.decodeTo(Schema.DateTimeUtc, {
    decode: SchemaGetter.transform(DateTime.fromDateUnsafe),
    encode: SchemaGetter.transform(DateTime.toDateUtc),
  }),
)

export { toJsonText }

/** The schema of JSON that a statement returns as text. Its numbers keep their text. */
export const exactJson = <S extends Schema.Top>(schema: S) => Schema.fromJsonString(schema, { reviver: keepNumbers })

/** The schema of a JSON column. It is exact text, because jsonb refuses some strings that JSON allows. */
export const JsonText = Schema.NullOr(Schema.String).pipe(
  Schema.decodeTo(Schema.Unknown, {
    decode: SchemaGetter.transform((text: string | null): unknown => (text === null ? null : new StoredJson(text))),
    encode: SchemaGetter.transform(toJsonText),
  }),
)

// With an explicit element type: the driver infers it from the elements, of which all may be null.
const array = (values: ReadonlyArray<unknown>, elementOid: number) =>
  Result.getOrThrow(PgTypes.array(values, elementOid))

/** Makes a value of a type of SQL; `undefined` stays: a column that does not change. */
export const typed = (sql: SqlClient.SqlClient) => (type: string, value: unknown) =>
  value === undefined ? undefined : sql`${value}::${sql.literal(type)}`
/** The columns that have a value, SQL or a parameter. */
export const given = <V>(columns: Readonly<Record<string, V | undefined>>) =>
  Object.entries(columns).filter((one): one is [string, V] => one[1] !== undefined)
/** The assignments of an UPDATE to the columns that have a value. */
export const assignments = (sql: SqlClient.SqlClient, columns: Readonly<Record<string, unknown>>) =>
  given(columns).map(([column, value]) => sql`${sql(column)} = ${value}`)

/** A parameter of type `text[]`. */
export const texts = (values: Iterable<string | null>) => array([...values], PgTypes.OID.text)
/** A parameter of type `int[]`. */
export const integers = (values: Iterable<number | null>) => array([...values], PgTypes.OID.int4)
/** A parameter of type `float8[]`. */
export const floats = (values: Iterable<number | null>) => array([...values], PgTypes.OID.float8)
/** A parameter of type `timestamptz[]`. */
export const times = (values: Iterable<DateTime.Utc | null>) =>
  array(
    [...values].map((time) => dateOrNull(time)),
    PgTypes.OID.timestamptz,
  )
/** A parameter of type `bytea[]`, from bytes in hex. */
export const bytes = (values: Iterable<string>) =>
  array(
    [...values].map((hex) => Buffer.from(hex, "hex")),
    PgTypes.OID.bytea,
  )

/**
 * The CTE `alive`: those of the orgs that exist, until the transaction ends: the erasure of an org waits for it, and
 * then finds what it wrote. For what is written later than its org was asked for, such as counts in memory.
 */
export const aliveOrgs = (sql: SqlClient.SqlClient, orgIds: ReadonlyArray<string>) =>
  sql`alive AS MATERIALIZED (SELECT id FROM orgs WHERE id = ANY(${texts(new Set(orgIds))}) ORDER BY id FOR KEY SHARE)`

/** SQL beside `aliveOrgs`: whether the org of a column exists, or it is the platform's. */
export const isAlive = (sql: SqlClient.SqlClient, column: string) =>
  sql.literal(`(${column} = '' OR ${column} IN (SELECT id FROM alive))`)

/**
 * Whether a column is between the first and the last of some ids. Beside an equation, for a statement that runs often:
 * a partition that has none of the ids is then not opened.
 */
export const isAmong = (sql: SqlClient.SqlClient, column: string, ids: ReadonlyArray<string>) => {
  const [first = "", last = ""] = [ids, ids].map((all, n) =>
    all.reduce((a, b) => (a < b === (n === 0) ? a : b), all[0] ?? ""),
  )
  return sql`${sql.literal(column)} >= ${first} AND ${sql.literal(column)} <= ${last}`
}

/** The digits of ULIDs. */
export const base32Digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

/** The time of an id, in milliseconds since 1970. */
export const timeOfId = (id: string) =>
  Array.from(id.slice(0, 10)).reduce((time, digit) => time * 32 + base32Digits.indexOf(digit), 0)

/** The beginning of every ULID of this time, in milliseconds since 1970. */
export const idAt = (millis: number) =>
  Array.from({ length: 10 }, (_, n) => base32Digits[Math.floor(Math.max(0, millis) / 32 ** (9 - n)) % 32]).join("")
