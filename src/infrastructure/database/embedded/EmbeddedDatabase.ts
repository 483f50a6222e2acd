import { Effect, Schedule, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { Duplex } from "node:stream"
import { Worker } from "node:worker_threads"
import { StartupError } from "../../StartupError.ts"
import * as DataFolder from "./DataFolder.ts"
import type { EmbeddedReply, EmbeddedTask } from "./EmbeddedWorker.ts"

/** PostgreSQL inside this process, with byte streams instead of sockets. */
export interface EmbeddedDatabase {
  /**
   * Opens a stream of the PostgreSQL protocol. The engine has one session, so the next stream waits until this one
   * ends.
   */
  readonly connect: () => Duplex
  /**
   * Subscribes to notifications and to the loss of the engine with its LISTENs. Returns a function that unsubscribes.
   */
  readonly subscribe: (subscriber: Subscriber) => () => void
}

interface Subscriber {
  readonly onNotification: (channel: string, payload: string) => void
  readonly onLost: (cause: Error) => void
}

/**
 * Starts the embedded database until the scope closes. After a panic the engine is restarted with the committed data
 * for the next session. Fails with a `StartupError`.
 *
 * @param dataDir DATA_DIR, or `memory` for a database that ends with the process
 */
export const make: (dataDir: string) => Effect.Effect<EmbeddedDatabase, StartupError, Scope.Scope> = Effect.fn(
  "EmbeddedDatabase.make",
)(function* (dataDir: string) {
  const { exists, folder } =
    dataDir === "memory" ? { exists: true, folder: undefined } : yield* DataFolder.acquire(dataDir)
  const failed = (cause: unknown) =>
    new StartupError({
      message: `The database in DATA_DIR ${dataDir} cannot be opened: ${(cause as Error).message}. See docs/embedded-database.md`,
      cause,
    })
  if (folder !== undefined && !exists) {
    yield* Effect.logInfo(`Creating the database in DATA_DIR ${dataDir}, once. This takes some seconds`)
    // Created by a second engine on a thread of its own, whose memory is released at its end.
    yield* Effect.tryPromise({
      try: () => startThread({ folder, unfinished: DataFolder.unfinished(folder) }).ended,
      catch: failed,
    })
  }

  const subscribers = new Set<Subscriber>()
  const engine = superviseEngine(folder, (cause) => {
    // A copy, because a subscriber may reconnect, which adds a subscriber that must not hear of this loss.
    for (const { onLost } of [...subscribers]) onLost(cause)
  })
  yield* Effect.acquireRelease(Effect.tryPromise({ try: engine.current, catch: failed }), () =>
    Effect.promise(engine.close),
  )

  let turn: Promise<void> = Promise.resolve()
  return {
    connect: () => {
      const session = new EmbeddedSession({
        // The driver may open a session before the one that it replaces has ended.
        takeTurn: (ended) => {
          const mine = turn.then(engine.current)
          turn = turn.then(() => ended)
          return mine
        },
        onNotification: (channel, payload) => {
          for (const { onNotification } of subscribers) onNotification(channel, payload)
        },
      })
      const subscriber: Subscriber = { onNotification: () => {}, onLost: (cause) => session.destroy(cause) }
      subscribers.add(subscriber)
      return session.once("close", () => subscribers.delete(subscriber))
    },
    subscribe: (subscriber) => {
      subscribers.add(subscriber)
      return () => subscribers.delete(subscriber)
    },
  }
})

/** Runs an engine. After a panic it starts a new one on demand, unless the database is in memory. */
const superviseEngine = (folder: string | undefined, onLost: (cause: Error) => void) => {
  let isClosing = false
  let thread: Thread | undefined
  const start = () => {
    const started = startThread({ folder })
    started.ended.catch((cause: Error) => {
      // A database in memory is lost with its engine; a new engine would look like an empty database.
      if (folder !== undefined) thread = undefined
      onLost(cause)
    })
    return started
  }
  return {
    current: (): Promise<Engine> => {
      thread ??= start()
      return isClosing ? Promise.reject(new Error("The embedded database is closed")) : thread.opened
    },
    close: async () => {
      isClosing = true
      thread?.worker.postMessage("close")
      await thread?.ended.catch(() => {})
    },
  }
}

interface Thread {
  readonly worker: Worker
  readonly opened: Promise<Engine>
  /** Resolves when the thread ends on request. Rejects with the reason when it ends otherwise. */
  readonly ended: Promise<void>
}

/** Stack size that fits the deepest JSON of a request. Its pages take memory only when they are used. */
const stackMiB = 128

const startThread = (task: EmbeddedTask): Thread => {
  const source = `./EmbeddedWorker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`
  const worker = new Worker(new URL(source, import.meta.url), {
    workerData: task,
    resourceLimits: { stackSizeMb: stackMiB },
  })
  const opened = Promise.withResolvers<Engine>()
  const ended = Promise.withResolvers<void>()
  const waiting: Array<PromiseWithResolvers<Uint8Array>> = []
  let fault: string | undefined
  let endedWith: Error | undefined

  worker.on("message", (reply: EmbeddedReply) => {
    if (reply instanceof Uint8Array) waiting.shift()!.resolve(reply)
    else if (reply === "open")
      opened.resolve((frames) => {
        const answer = Promise.withResolvers<Uint8Array>()
        if (endedWith !== undefined) answer.reject(endedWith)
        else {
          waiting.push(answer)
          const copy = new Uint8Array(frames) // transferring a Buffer would transfer its whole pool
          worker.postMessage(copy, [copy.buffer])
        }
        return answer.promise
      })
    else fault ??= reply.fault // the first fault is the cause of the others
  })
  worker.on("error", (error) => (fault ??= String(error)))
  worker.on("exit", (code) => {
    endedWith = new Error(`The embedded database stopped: ${fault ?? `its thread ended with exit code ${code}`}`)
    opened.reject(endedWith)
    for (const { reject } of waiting.splice(0)) reject(endedWith)
    if (code === 0) ended.resolve()
    else ended.reject(endedWith)
  })
  opened.promise.catch(() => {})
  ended.promise.catch(() => {})
  return { worker, opened: opened.promise, ended: ended.promise }
}

/** A running engine: answers frontend messages with backend messages of the PostgreSQL protocol. */
type Engine = (frames: Uint8Array) => Promise<Uint8Array>

interface Options {
  /** Waits for the earlier sessions and returns the engine. `ended` resolves when this session ends. */
  readonly takeTurn: (ended: Promise<void>) => Promise<Engine>
  readonly onNotification: (channel: string, payload: string) => void
}

/**
 * The server side of one connection to the embedded engine; the driver uses it as a socket. The engine has a single
 * session and handles neither startup nor termination, so each connection resets the session first.
 */
class EmbeddedSession extends Duplex {
  readonly #options: Options
  #engine: Engine | undefined

  constructor(options: Options) {
    super()
    this.#options = options
  }

  override _read() {}

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void) {
    this.#take([chunk], done)
  }

  /** Sends the writes that arrived while the engine was busy in one piece. */
  override _writev(chunks: Array<{ chunk: Buffer }>, done: (error?: Error) => void) {
    this.#take(
      chunks.map(({ chunk }) => chunk),
      done,
    )
  }

  override _final(done: () => void) {
    done()
    this.destroy()
  }

  #take(chunks: ReadonlyArray<Buffer>, done: (error?: Error) => void) {
    this.#answer(chunks).then(() => done(), done)
  }

  async #answer(chunks: ReadonlyArray<Buffer>) {
    if (this.#engine === undefined) return this.#begin(chunks[0]!)
    // Each write consists of complete messages, and Terminate is a write of its own.
    const frames = chunks.filter((chunk) => chunk[0] !== TERMINATE)
    if (frames.length === 0) return
    const answer = await this.#engine(Buffer.concat(frames))
    if (this.destroyed) return
    for (const [channel, payload] of notifications(answer)) this.#options.onNotification(channel, payload)
    this.push(answer)
  }

  async #begin(startup: Buffer) {
    // A statement cannot be canceled: the engine reads nothing while it executes one.
    if (startup.readInt32BE(4) === CANCEL_REQUEST) return void this.destroy()
    const ended = new Promise<void>((resolve) => this.once("close", resolve))
    const engine = await this.#options.takeTurn(ended)
    for (const sql of reset) {
      if (this.destroyed) return
      await engine(simpleQuery(sql))
    }
    this.#engine = engine
    this.push(greeting)
  }
}

const TERMINATE = 0x58
const CANCEL_REQUEST = 80877102
const NOTIFICATION = 0x41

/**
 * Ends the transaction, statements, settings and locks of the previous session. Keeps LISTEN, which all sessions share.
 */
const reset = ["ROLLBACK", "DEALLOCATE ALL", "RESET ALL", "SELECT pg_advisory_unlock_all()"]

const simpleQuery = (sql: string): Uint8Array => {
  const frame = Buffer.from(`Q....${sql}\0`)
  frame.writeInt32BE(frame.length - 1, 1)
  return frame
}

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const greeting = Buffer.from("5200000008000000004b0000000c00000001000000015a0000000549", "hex")

/** Finds the notifications among backend messages. */
const notifications = function* (answer: Uint8Array): Generator<readonly [channel: string, payload: string]> {
  const bytes = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength)
  for (let at = 0; at < bytes.length; at += 1 + bytes.readInt32BE(at + 1)) {
    if (bytes[at] !== NOTIFICATION) continue
    const channelEnd = bytes.indexOf(0, at + 9)
    yield [
      bytes.toString("utf8", at + 9, channelEnd),
      bytes.toString("utf8", channelEnd + 1, bytes.indexOf(0, channelEnd + 1)),
    ]
  }
}

/** Limit of the log before a checkpoint: a start after a crash replays at most this. */
const maxLogBytes = 64 * 1024 * 1024

/**
 * Runs once what autovacuum (with its thresholds) and the checkpointer do in a PostgreSQL server. The embedded engine
 * has no background processes, so its tables and its log would only grow.
 *
 * @param maxLogBytes the log size that causes a checkpoint
 */
export const maintain = Effect.fn("EmbeddedMaintenance.maintain")(function* (maxLogBytes: number) {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql<{ name: string }>`
    SELECT format('%I.%I', t.schemaname, t.relname) AS name
    FROM pg_stat_all_tables t JOIN pg_class c ON c.oid = t.relid
    WHERE c.relkind = 'r' AND (t.n_dead_tup > 50 + 0.2 * t.n_live_tup
      OR t.n_mod_since_analyze > 50 + 0.1 * t.n_live_tup OR t.n_ins_since_vacuum > 1000 + 0.2 * t.n_live_tup
      OR age(c.relfrozenxid) > 100000000)`
  for (const { name } of tables) yield* sql`VACUUM (ANALYZE) ${sql.literal(name)}`
  const [log] = yield* sql<{ bytes: number }>`
    SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn)::float8 AS bytes FROM pg_control_checkpoint()`
  if (log!.bytes > maxLogBytes) yield* sql`CHECKPOINT`
})

/** Maintains the embedded database every minute. */
export const maintenance: Effect.Effect<void, never, SqlClient.SqlClient> = maintain(maxLogBytes).pipe(
  Effect.catchCause((cause) => Effect.logWarning("The maintenance of the embedded database failed", cause)),
  Effect.repeat(Schedule.spaced("1 minute")),
  Effect.asVoid,
)
