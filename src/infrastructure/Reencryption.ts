import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Cipher } from "../domain/Cipher.ts"
import { answerOwner } from "../domain/Idempotency.ts"
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

/** How many secrets are read at once. */
const batch = 500
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

const reencryptPlace = Effect.fnUntraced(function* (
  place: Place,
  prefix: string,
  onBatch: (what: string, done: number) => Effect.Effect<void>,
) {
  const sql = yield* SqlClient.SqlClient
  const cipher = yield* Cipher
  const table = sql(place.table)
  const key = sql.literal(`(${place.key.join(", ")})`)
  const columns = sql.literal([...place.key, ...(place.ownerColumns ?? []), `${place.column} AS stored`].join(", "))
  const values = (row: Row) => sql.csv(keyOf(place, row).map((value) => sql`${value}`))

  /** Encrypts one anew, unless someone changes it at the moment: then theirs stays. Gives how many that was. */
  const reencrypt = Effect.fnUntraced(function* (row: Row, stored: string) {
    const owner = place.ownerOf(row)
    const fresh = yield* cipher.encrypt(yield* cipher.decrypt(stored, owner), owner)
    const written = yield* sql`
      UPDATE ${table} SET ${sql(place.column)} = ${fresh}
      WHERE ${key} = (${values(row)}) AND ${sql(place.column)} = ${stored} RETURNING 1`
    return written.length
  })

  let done = 0
  const unreadable: Array<string> = []
  let last: Row | undefined
  do {
    const rows: ReadonlyArray<Row> = yield* sql<Row>`
      SELECT ${columns} FROM ${table}
      WHERE ${isLeft(sql, place, prefix)} AND ${last === undefined ? sql.literal("true") : sql`${key} > (${values(last)})`}
      ORDER BY ${sql.literal(place.key.join(", "))} LIMIT ${batch}`
    const ends = yield* Effect.forEach(
      rows,
      (row) =>
        reencrypt(row, row["stored"]!).pipe(
          // A secret that cannot be read is a defect, as no request can have stored it so.
          Effect.catchDefect(() => Effect.sync(() => (unreadable.push(keyOf(place, row).join(" ")), 0))),
        ),
      { concurrency },
    )
    done += ends.reduce((sum, one) => sum + one, 0)
    if (rows.length > 0) yield* onBatch(place.what, done)
    last = rows.length === batch ? rows.at(-1) : undefined
  } while (last !== undefined)

  return { what: place.what, done, unreadable }
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
  const sql = yield* SqlClient.SqlClient
  const prefix = prefixOf(keyId(Redacted.value(keys[0]!)))
  const ends = yield* Effect.forEach(places, (place) => reencryptPlace(place, prefix, onBatch))
  // Counted once all are done: a service with another first key may have stored more, and a schedule its secret's copy.
  return yield* Effect.forEach(ends, (end, n) =>
    Effect.map(
      sql<{ left: number }>`
        SELECT count(*)::int AS left FROM ${sql(places[n]!.table)} WHERE ${isLeft(sql, places[n]!, prefix)}`,
      ([row]): Reencrypted => ({ ...end, left: row!.left }),
    ),
  )
})
