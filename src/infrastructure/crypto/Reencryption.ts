import { Effect, Redacted } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Cipher } from "../../domain/Cipher.ts"
import { answerOwner } from "../../domain/Idempotency.ts"
import { keyId, prefixOf } from "./Cipher.ts"

/** A column in which secrets are stored. */
interface Place {
  /** What is in it, for a person. */
  readonly what: string
  readonly table: string
  readonly column: string
  /** The primary key's columns. */
  readonly key: ReadonlyArray<string>
  /** What a secret is bound to, of these columns besides the primary key's. */
  readonly ownerOf: (row: Row) => string
  readonly ownerColumns?: ReadonlyArray<string>
  /** Which rows are still of use; all unless told. */
  readonly inUse?: string
}
type Row = Readonly<Record<string, string>>

/** Schedules before jobs, for a schedule's secret is copied to the jobs that it makes. */
const places: ReadonlyArray<Place> = [
  {
    what: "signing secrets",
    table: "webhook_endpoints",
    column: "secret",
    key: ["id"],
    ownerOf: (row) => row["id"]!,
  },
  {
    what: "previous signing secrets",
    table: "webhook_endpoints",
    column: "previous_secret",
    key: ["id"],
    ownerOf: (row) => row["id"]!,
    inUse: "previous_secret_until > now()",
  },
  {
    what: "callback secrets of schedules",
    table: "job_schedules",
    column: "callback_secret",
    key: ["id"],
    ownerOf: (row) => row["id"]!,
  },
  {
    what: "callback secrets of jobs",
    table: "jobs",
    column: "callback_secret",
    key: ["id"],
    ownerOf: (row) => row["callback_secret_owner"]!,
    ownerColumns: ["callback_secret_owner"],
  },
  {
    what: "answers kept for an Idempotency-Key",
    table: "idempotency_keys",
    column: "record",
    key: ["caller", "operation", "key"],
    ownerOf: (row) => answerOwner({ caller: row["caller"]!, operation: row["operation"]!, key: row["key"]! }),
    inUse: "expires_at > now()",
  },
]

/** How many rows are read at once. */
const pageSize = 500
/** How many are written at once. */
const concurrency = 8

/** What came of one place. */
export interface Reencrypted {
  readonly what: string
  /** How many were encrypted anew. */
  readonly done: number
  /** How many are not under the first key when it ends: the unreadable ones, and what was written meanwhile. */
  readonly left: number
  /** The primary keys of those that none of the keys decrypts. */
  readonly unreadable: ReadonlyArray<string>
}

/** The condition of those that are not under the first key. */
const isLeft = (sql: SqlClient.SqlClient, place: Place, prefix: string) => sql`
  ${sql(place.column)} IS NOT NULL AND NOT starts_with(${sql(place.column)}, ${prefix})
  AND ${sql.literal(place.inUse ?? "true")}`

const keyOf = (place: Place, row: Row) => place.key.map((name) => row[name]!)

/** The key of a row as a row value, as `(caller, operation, key)` has one. */
const valuesOf = (sql: SqlClient.SqlClient, place: Place, row: Row) =>
  sql.csv(keyOf(place, row).map((value) => sql`${value}`))

/**
 * Goes through a place page by page, by its primary key: a statement reads a page, however many secrets are left in it.
 *
 * @param columns what to read of each row, besides the key
 */
const eachPage = Effect.fnUntraced(function* <E, R>(
  place: Place,
  columns: Statement.Fragment,
  onPage: (rows: ReadonlyArray<Row>) => Effect.Effect<void, E, R>,
) {
  const sql = yield* SqlClient.SqlClient
  const key = sql.literal(place.key.join(", "))
  let last: Row | undefined
  do {
    const after = last === undefined ? sql.literal("true") : sql`(${key}) > (${valuesOf(sql, place, last)})`
    const rows: ReadonlyArray<Row> = yield* sql<Row>`
      SELECT ${key}, ${columns} FROM ${sql(place.table)} WHERE ${after} ORDER BY ${key} LIMIT ${pageSize}`
    yield* onPage(rows)
    last = rows.length === pageSize ? rows.at(-1) : undefined
  } while (last !== undefined)
})

const reencryptPlace = Effect.fnUntraced(function* (
  place: Place,
  prefix: string,
  onBatch: (what: string, done: number) => Effect.Effect<void>,
) {
  const sql = yield* SqlClient.SqlClient
  const cipher = yield* Cipher
  const table = sql(place.table)
  const key = sql.literal(`(${place.key.join(", ")})`)
  const owners = sql.literal((place.ownerColumns ?? []).map((column) => `${column}, `).join(""))

  /** Encrypts one anew, unless someone changes it at the moment: then theirs stays. Gives how many that was. */
  const reencrypt = Effect.fnUntraced(function* (row: Row, stored: string) {
    const owner = place.ownerOf(row)
    const fresh = yield* cipher.encrypt(yield* cipher.decrypt(stored, owner), owner)
    const written = yield* sql`
      UPDATE ${table} SET ${sql(place.column)} = ${fresh}
      WHERE ${key} = (${valuesOf(sql, place, row)}) AND ${sql(place.column)} = ${stored} RETURNING 1`
    return written.length
  })

  let done = 0
  const unreadable: Array<string> = []
  const columns = sql`${owners} CASE WHEN ${isLeft(sql, place, prefix)} THEN ${sql(place.column)} END AS stored`
  yield* eachPage(place, columns, (rows) =>
    Effect.gen(function* () {
      const left = rows.filter((row) => row["stored"] !== null)
      const ends = yield* Effect.forEach(
        left,
        (row) =>
          reencrypt(row, row["stored"]!).pipe(
            // A secret that cannot be read is a defect, as no request can have stored it so.
            Effect.catchDefect(() => Effect.sync(() => (unreadable.push(keyOf(place, row).join(" ")), 0))),
          ),
        { concurrency },
      )
      done += ends.reduce((sum, one) => sum + one, 0)
      if (left.length > 0) yield* onBatch(place.what, done)
    }),
  )

  return { what: place.what, done, unreadable }
})

/** How many secrets of a place are not under the first key. */
const countLeft = Effect.fnUntraced(function* (place: Place, prefix: string) {
  const sql = yield* SqlClient.SqlClient
  let left = 0
  yield* eachPage(place, sql`CASE WHEN ${isLeft(sql, place, prefix)} THEN '' END AS stored`, (rows) =>
    Effect.sync(() => void (left += rows.filter((row) => row["stored"] !== null).length)),
  )
  return left
})

/**
 * Encrypts every stored secret that is still of use under the first of the keys, where it is not. Batch by batch, each
 * secret by itself, so that it can be stopped at any moment and run again for what is left; services may run meanwhile.
 *
 * @param keys those of the `Cipher`, the one in use first
 * @param onBatch told after each batch how many of a place are done
 */
export const reencrypt = Effect.fn("Reencryption.reencrypt")(function* (
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
  onBatch: (what: string, done: number) => Effect.Effect<void> = () => Effect.void,
) {
  const prefix = prefixOf(keyId(Redacted.value(keys[0]!)))
  const ends = yield* Effect.forEach(places, (place) => reencryptPlace(place, prefix, onBatch))
  // Counted once all are done: a service with another first key may have stored more, and a schedule its secret's copy.
  return yield* Effect.forEach(ends, (end, n) =>
    Effect.map(countLeft(places[n]!, prefix), (left) => ({ ...end, left })),
  )
})
