import { Effect, Redacted } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Cipher } from "../../domain/Cipher.ts"
import { Nodes } from "../database/Nodes.ts"
import { responseOwner } from "../../domain/Idempotency.ts"
import { keyId, prefixOf } from "./AesCipher.ts"

/** A column of encrypted secrets. */
interface SecretColumn {
  /** A name for the secrets, for output. */
  readonly what: string
  readonly table: string
  readonly column: string
  /** The columns of the primary key; default: `id`. */
  readonly key?: ReadonlyArray<string>
  /** The column with the owner that a secret is bound to; default: the first of the key. */
  readonly ownerColumn?: string
  /** The owner, if no column has it: reads the primary key. */
  readonly ownerOf?: (row: Row) => string
  /** An SQL condition for rows whose secret may still be needed; default: all rows. */
  readonly inUse?: string
}
type Row = Readonly<Record<string, string>>

/** Schedules, jobs, events: in the order in which secrets are copied. */
const secretColumns: ReadonlyArray<SecretColumn> = [
  { what: "signing secrets", table: "webhook_endpoints", column: "secret" },
  {
    what: "previous signing secrets",
    table: "webhook_endpoints",
    column: "previous_secret",
    inUse: "previous_secret_until > now()",
  },
  { what: "headers of endpoints", table: "webhook_endpoints", column: "headers" },
  { what: "authorizations of endpoints", table: "webhook_endpoints", column: "auth" },
  { what: "signing keys of orgs", table: "org_signing_keys", column: "private_key", key: ["org_id"] },
  {
    what: "previous signing keys of orgs",
    table: "org_signing_keys",
    column: "previous_private_key",
    inUse: "previous_until > now()",
    key: ["org_id"],
  },
  { what: "keys that sign tokens", table: "token_keys", column: "private_key" },
  { what: "targets of alerts", table: "alerts", column: "secret" },
  { what: "callback secrets of schedules", table: "job_schedules", column: "callback_secret" },
  { what: "callback secrets of jobs", table: "jobs", column: "callback_secret", ownerColumn: "callback_secret_owner" },
  {
    what: "callback secrets of events",
    table: "events",
    column: "callback_secret",
    ownerColumn: "callback_secret_owner",
  },
  {
    what: "responses kept for an Idempotency-Key",
    table: "idempotency_keys",
    column: "record",
    key: ["org_id", "caller", "operation", "key"],
    ownerOf: (row) => responseOwner({ caller: row["caller"]!, operation: row["operation"]!, key: row["key"]! }),
    inUse: "expires_at > now()",
  },
]

/** Rows that one statement reads. */
const pageRows = 500
/** Limit of concurrent updates. */
const maxConcurrentUpdates = 8

/** The result for one column. */
export interface Reencrypted {
  readonly what: string
  /** The number of secrets that were encrypted again. */
  readonly done: number
  /** The number of secrets that do not use the first key at the end: unreadable, or written during the run. */
  readonly left: number
  /** The primary keys of the secrets that none of the keys decrypts. */
  readonly unreadable: ReadonlyArray<string>
}

/** A replica that encrypts with another key than the first one. */
export interface OtherReplica {
  readonly replicaId: string
  readonly keyId: string
}

/** How long after its last sign of life a replica may still write: it gives one every 20 seconds. */
const aliveFor = "1 minute"

/** The SQL condition for secrets that do not use the first key. */
const isLeft = (sql: SqlClient.SqlClient, { column, inUse = "true" }: SecretColumn, prefix: string) => sql`
  ${sql(column)} IS NOT NULL AND NOT starts_with(${sql(column)}, ${prefix})
  AND ${sql.literal(inUse)}`

const keyColumns = ({ key = ["id"] }: SecretColumn) => key
const keyOf = (column: SecretColumn, row: Row) => keyColumns(column).map((name) => row[name]!)

/** The values of a row's primary key, for a comparison with its columns. */
const keyValues = (sql: SqlClient.SqlClient, column: SecretColumn, row: Row) =>
  sql.csv(keyOf(column, row).map((value) => sql`${value}`))

/**
 * Reads all rows page by page in the order of the primary key, so that a statement reads one page, however few of its
 * secrets are left.
 *
 * @param columns the columns to read, besides the primary key
 */
const eachPage = Effect.fnUntraced(function* <E, R>(
  secretColumn: SecretColumn,
  columns: Statement.Fragment,
  onPage: (rows: ReadonlyArray<Row>) => Effect.Effect<void, E, R>,
) {
  const sql = yield* SqlClient.SqlClient
  const key = sql.literal(keyColumns(secretColumn).join(", "))
  let last: Row | undefined
  do {
    const after = last === undefined ? sql.literal("true") : sql`(${key}) > (${keyValues(sql, secretColumn, last)})`
    const rows: ReadonlyArray<Row> = yield* sql<Row>`
      SELECT ${key}, ${columns} FROM ${sql(secretColumn.table)} WHERE ${after} ORDER BY ${key} LIMIT ${pageRows}`
    yield* onPage(rows)
    last = rows.length === pageRows ? rows.at(-1) : undefined
  } while (last !== undefined)
})

const reencryptColumn = Effect.fnUntraced(function* (
  column: SecretColumn,
  prefix: string,
  onBatch: (what: string, done: number) => Effect.Effect<void>,
) {
  const sql = yield* SqlClient.SqlClient
  const cipher = yield* Cipher
  const table = sql(column.table)
  const keys = keyColumns(column)
  const { ownerColumn = keys[0]!, ownerOf = (row: Row) => row[ownerColumn]! } = column
  const key = sql.literal(`(${keys.join(", ")})`)
  const owners = sql.literal(keys.includes(ownerColumn) ? "" : `${ownerColumn}, `)

  /** Encrypts one secret again, unless it changes at the same time. Returns the number of changed rows. */
  const reencryptRow = Effect.fnUntraced(function* (row: Row, stored: string) {
    const owner = ownerOf(row)
    const fresh = yield* cipher.encrypt(yield* cipher.decrypt(stored, owner), owner)
    const written = yield* sql`
      UPDATE ${table} SET ${sql(column.column)} = ${fresh}
      WHERE ${key} = (${keyValues(sql, column, row)}) AND ${sql(column.column)} = ${stored} RETURNING 1`
    return written.length
  })

  let done = 0
  const unreadable: Array<string> = []
  const columns = sql`${owners} CASE WHEN ${isLeft(sql, column, prefix)} THEN ${sql(column.column)} END AS stored`
  yield* eachPage(column, columns, (rows) =>
    Effect.gen(function* () {
      const left = rows.filter((row) => row["stored"] !== null)
      const changed = yield* Effect.forEach(
        left,
        (row) =>
          reencryptRow(row, row["stored"]!).pipe(
            // The cipher dies of an unreadable secret.
            Effect.catchDefect(() => Effect.sync(() => (unreadable.push(keyOf(column, row).join(" ")), 0))),
          ),
        { concurrency: maxConcurrentUpdates },
      )
      done += changed.reduce((sum, one) => sum + one, 0)
      if (left.length > 0) yield* onBatch(column.what, done)
    }),
  )

  return { what: column.what, done, unreadable }
})

/** Counts the secrets of a column that do not use the first key. */
const countLeft = Effect.fnUntraced(function* (column: SecretColumn, prefix: string) {
  const sql = yield* SqlClient.SqlClient
  let left = 0
  yield* eachPage(column, sql`CASE WHEN ${isLeft(sql, column, prefix)} THEN '' END AS stored`, (rows) =>
    Effect.sync(() => void (left += rows.filter((row) => row["stored"] !== null).length)),
  )
  return left
})

/**
 * Encrypts with the first key every stored secret that may still be needed and uses another key. It changes each secret
 * by itself, so it can be stopped at any time and run again. The service may run at the same time. Returns the secrets
 * of each column, and the `others`: the replicas that still encrypt with another key.
 *
 * @param keys the keys of the `Cipher`, the current key first
 * @param onBatch called after each batch with the name of the secrets and the number done so far
 */
export const reencrypt = Effect.fn("Reencryption.reencrypt")(function* (
  keys: ReadonlyArray<Redacted.Redacted<Uint8Array>>,
  onBatch: (what: string, done: number) => Effect.Effect<void> = () => Effect.void,
) {
  const prefix = prefixOf(keyId(Redacted.value(keys[0]!)))
  const sql = yield* SqlClient.SqlClient
  const { all } = yield* Nodes
  yield* Effect.forEach(all, ({ migrated }) => migrated)
  const everywhere = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.forEach([sql, ...all.map((node) => node.sql)], (database) =>
      Effect.provideService(effect, SqlClient.SqlClient, database),
    )
  const results = yield* Effect.forEach(secretColumns, (column) =>
    Effect.map(everywhere(reencryptColumn(column, prefix, onBatch)), (parts) => ({
      what: column.what,
      done: parts.reduce((sum, { done }) => sum + done, 0),
      unreadable: parts.flatMap(({ unreadable }) => unreadable),
    })),
  )
  // Counted at the end: a replica with another first key, or a run of a schedule, may have stored more meanwhile. The
  // replicas are read before: what one that stops in between has stored is counted.
  const others = yield* replicasWithOtherKey
  const secrets = yield* Effect.forEach(results, (result, n) =>
    Effect.map(everywhere(countLeft(secretColumns[n]!, prefix)), (parts) => ({
      ...result,
      left: parts.reduce((sum, left) => sum + left, 0),
    })),
  )
  return { secrets, others }
})

/**
 * The running replicas that encrypt with another key than the `Cipher` does. Whatever was counted, they may store
 * secrets with it at any time.
 */
const replicasWithOtherKey = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { keyIds } = yield* Cipher
  return yield* sql<OtherReplica>`
    SELECT id AS "replicaId", encryption_key_id AS "keyId" FROM replicas
    WHERE seen_at > now() - ${aliveFor}::interval AND encryption_key_id <> ${keyIds[0]} ORDER BY id LIMIT 100`
})
