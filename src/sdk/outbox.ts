import { backoff, isRefusal, pause, poster, process, type RequestFailed, safely, toError } from "./post.ts"

/** A connection of the business's database. A client of a pool of `pg` is one. */
export interface OutboxConnection {
  readonly query: (text: string, values?: Array<string>) => Promise<{ readonly rows: ReadonlyArray<unknown> }>
  /** Calls back for notifications, and when the connection is lost. Without it, rows are found by polling alone. */
  readonly on?: (event: "notification" | "error" | "end", listener: (fault?: unknown) => void) => unknown
  /** Returns the connection to its pool, or closes it. */
  readonly release: (destroy?: boolean) => void
}

export interface OutboxOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly baseUrl: string | URL
  /** An API key of the org or of a project of it. */
  readonly key: string
  /** The database that has the schema `gatehouse_outbox`: a `Pool` of `pg`. */
  readonly pool: { readonly connect: () => Promise<OutboxConnection> }
  /** How many batches of events, and of jobs, are sent at the same time. Default: 1. */
  readonly concurrency?: number
  /** One relay at a time sends, one batch at a time, so that rows go in the order of their ids. Default: false. */
  readonly ordered?: boolean
  /** How often to look for rows of which no notification came, in seconds. Default: 1. */
  readonly pollSeconds?: number
  /** Receives what goes wrong. The relay tries again by itself. Default: writes to standard error. */
  readonly onError?: (error: Error) => void
}

export interface OutboxMetrics {
  /** Rows that wait, counted up to 100,000. */
  readonly waiting: number
  /** Age of the oldest row that waits, in seconds; 0 without any. */
  readonly oldestSeconds: number
  /** Rows that are set aside with an error, counted up to 100,000. */
  readonly refused: number
  /** Rows that this relay has sent. */
  readonly sent: number
}

export interface Outbox {
  /** Looks for rows now. */
  readonly wake: () => void
  readonly metrics: () => Promise<OutboxMetrics>
  /** Claims no more rows, and resolves when those in flight are sent. */
  readonly stop: () => Promise<void>
}

type Kind = "event" | "job"
interface Row {
  readonly id: string
  readonly body: string
}

/** The batches of each kind. */
const batches = {
  event: { operation: "events/publish-batch", field: "events", limit: 100 },
  job: { operation: "jobs/create-batch", field: "jobs", limit: 1_000 },
} as const
const kinds = Object.keys(batches) as ReadonlyArray<Kind>

/** The largest batch in bytes of its rows; the service takes 8 MiB. */
const maxBatchBytes = 7 * 1024 * 1024
/** Longer than a request. After that, PostgreSQL ends the transaction of a relay that disappeared. In milliseconds. */
const idleTimeout = 60_000

/** How long the relay waits after a notification for the rows of others: it bounds claims that find nothing. */
const gatherMillis = 10

/** Locks the oldest rows that no other relay has locked; returns as many as fit into a batch, and at least one. */
const claim = (kind: Kind) => `
  SELECT id::text, body
  FROM (
    SELECT id, body, sum(octet_length(body)) OVER (ORDER BY id) AS bytes, row_number() OVER (ORDER BY id) AS number
    FROM (
      SELECT id, body FROM gatehouse_outbox.messages
      WHERE state = 'waiting' AND kind = '${kind}'
      ORDER BY id LIMIT ${batches[kind].limit} FOR UPDATE SKIP LOCKED
    ) AS locked
  ) AS sized
  WHERE number = 1 OR bytes <= ${maxBatchBytes}
  ORDER BY sized.id`

const these = (kind: Kind) => `state = 'waiting' AND kind = '${kind}' AND id = ANY (CAST($1::text AS bigint[]))`
const remove = (kind: Kind) => `DELETE FROM gatehouse_outbox.messages WHERE ${these(kind)}`
const setAside = (kind: Kind) =>
  `UPDATE gatehouse_outbox.messages SET state = 'refused', error = $2::text WHERE ${these(kind)}`
const onlyRelay = (kind: Kind) => `SELECT pg_try_advisory_xact_lock(hashtext('gatehouse_outbox ${kind}')) AS mine`

const count = (state: string) =>
  `(SELECT count(*)::int FROM (SELECT FROM gatehouse_outbox.messages WHERE state = '${state}' LIMIT 100000) AS rows)`
const oldest = (kind: Kind) =>
  `(SELECT created_at FROM gatehouse_outbox.messages WHERE state = 'waiting' AND kind = '${kind}' ORDER BY id LIMIT 1)`
const figures = `SELECT ${count("waiting")} AS waiting, ${count("refused")} AS refused,
  greatest(0, coalesce(extract(epoch FROM clock_timestamp() - least(${kinds.map(oldest).join()})), 0))::float8 AS age`

const logError = (error: Error) => void process.stderr.write(`gatehouse outbox: ${error.message}\n`)

const idsOf = (rows: ReadonlyArray<Row>) => `{${rows.map(({ id }) => id).join()}}`

/** Divides a refused batch at the item that the sentence names (`jobs.7.run_at must be …`), else into halves. */
const divide = (kind: Kind, rows: ReadonlyArray<Row>, { message }: RequestFailed) => {
  const named = Number(new RegExp(`\\b${batches[kind].field}\\.(\\d+)\\b`).exec(message)?.[1])
  const [from, to] = named < rows.length ? [named, named + 1] : [rows.length >> 1, rows.length >> 1]
  return [rows.slice(0, from), rows.slice(from, to), rows.slice(to)].filter((part) => part.length > 0)
}

/**
 * Starts a relay: it sends committed rows of the outbox, and deletes them after the response. Run any number of them: a
 * row is locked while it is sent. A row that the service refuses is set aside with its error, and the others go on.
 *
 * @example
 * ```ts
 * import { startOutbox } from "gatehouse-worker/outbox"
 * import { Pool } from "pg"
 *
 * const outbox = startOutbox({
 *   baseUrl: "https://gatehouse.example.com",
 *   key: process.env.GATEHOUSE_TOKEN!,
 *   pool: new Pool({ connectionString: process.env.GATEHOUSE_OUTBOX_DATABASE_URL }),
 * })
 * process.once("SIGTERM", () => void outbox.stop())
 * ```
 */
export const startOutbox = (options: OutboxOptions): Outbox => {
  const { baseUrl, key, ordered = false, pollSeconds = 1, pool } = options
  const onError = safely(options.onError ?? logError)
  const concurrency = ordered ? 1 : (options.concurrency ?? 1)
  if (!(Number.isInteger(concurrency) && concurrency >= 1)) throw new RangeError("concurrency must be 1 or more.")
  if (!(pollSeconds > 0)) throw new RangeError("pollSeconds must be more than 0.")
  const post = poster(baseUrl, key)
  const stopping = new AbortController()
  const { signal } = stopping
  let sent = 0

  /** Aborted and replaced by each wake-up. */
  let asleep = new AbortController()
  const wake = () => {
    const woken = asleep
    asleep = new AbortController()
    woken.abort()
  }
  signal.addEventListener("abort", wake)

  /** Connections whose loss is noticed by their queries alone; of one without a listener, `pg` ends the process. */
  const guarded = new WeakSet<OutboxConnection>()
  const connect = async () => {
    const connection = await pool.connect()
    if (!guarded.has(connection)) connection.on?.("error", () => {})
    guarded.add(connection)
    return connection
  }

  /**
   * Sends rows as one batch, or in parts when the service refuses it. Deletes those that are sent, and sets aside those
   * that are refused. Returns how many are sent.
   */
  const send = async (connection: OutboxConnection, kind: Kind, rows: ReadonlyArray<Row>): Promise<number> => {
    const { field, operation } = batches[kind]
    try {
      await post(operation, `{"${field}":[${rows.map(({ body }) => body).join()}]}`)
    } catch (error) {
      if (!isRefusal(error)) throw error
      if (rows.length === 1) {
        await connection.query(setAside(kind), [idsOf(rows), error.message])
        return 0
      }
      let count = 0
      for (const part of divide(kind, rows, error)) count += await send(connection, kind, part)
      return count
    }
    await connection.query(remove(kind), [idsOf(rows)])
    return rows.length
  }

  /** Sends one batch in a transaction that holds its rows. Returns how many rows it had. */
  const sendBatch = async (kind: Kind) => {
    const connection = await connect()
    let isClean = false
    try {
      await connection.query("BEGIN")
      await connection.query(`SET LOCAL idle_in_transaction_session_timeout = ${idleTimeout}`)
      const [turn] = ordered ? ((await connection.query(onlyRelay(kind))).rows as [{ readonly mine: boolean }]) : []
      const rows = turn?.mine === false ? [] : ((await connection.query(claim(kind))).rows as ReadonlyArray<Row>)
      const count = rows.length === 0 ? 0 : await send(connection, kind, rows)
      await connection.query("COMMIT")
      isClean = true
      sent += count
      return rows.length
    } catch (error) {
      isClean = await connection.query("ROLLBACK").then(
        () => true,
        () => false,
      )
      throw error
    } finally {
      connection.release(!isClean)
    }
  }

  /** Calls a function until the relay stops; waits after each failure. */
  const repeat = async (act: () => Promise<void>) => {
    for (let failures = 0; !signal.aborted;) {
      try {
        await act()
        failures = 0
      } catch (error) {
        onError(toError(error))
        await pause(backoff(failures++, error), signal)
      }
    }
  }

  const relay = (kind: Kind) =>
    repeat(async () => {
      // From before the claim: a wake-up during it is not lost.
      const awake = asleep.signal
      if ((await sendBatch(kind)) > 0) return
      await pause(pollSeconds * 1000, awake)
      await pause(gatherMillis, signal)
    })

  /** Wakes the relay when a transaction with rows commits, until the connection is lost. */
  const listen = async () => {
    const connection = await connect()
    if (connection.on === undefined) {
      connection.release()
      return pause(2 ** 31 - 1, signal)
    }
    try {
      const lost = new Promise<never>((_, reject) => {
        connection.on!("error", (fault) => reject(toError(fault)))
        connection.on!("end", () => reject(new Error("The connection that listens has ended.")))
      })
      connection.on("notification", wake)
      await Promise.race([lost, connection.query("LISTEN gatehouse_outbox")])
      // What was committed before.
      wake()
      await Promise.race([lost, pause(2 ** 31 - 1, signal)])
    } finally {
      connection.release(true)
    }
  }

  const metrics = async () => {
    const connection = await connect()
    try {
      const [row] = (await connection.query(figures)).rows as [Record<"waiting" | "refused" | "age", number>]
      return { waiting: row.waiting, oldestSeconds: row.age, refused: row.refused, sent }
    } finally {
      connection.release()
    }
  }

  const relays = kinds.flatMap((kind) => Array.from({ length: concurrency }, () => relay(kind)))
  const done = Promise.all([repeat(listen), ...relays])
  const stop = async () => {
    stopping.abort()
    await done
  }
  return { wake, metrics, stop }
}
