import { PgConnection } from "@effect/sql-pg"
import { Duration, Effect, Exit, Fiber, type Redacted, Schedule } from "effect"
import { SqlError } from "effect/sql"
import { connect, type Socket } from "node:net"
import { poolConfig } from "../PostgresDatabase.ts"
import type { Node } from "./placements.ts"

/** The pause between two heartbeats of a node. */
const heartbeatInterval = Duration.millis(500)
/**
 * A node that answers nothing for twice this time is silent. Twice, because the first time may end late while the process itself
 * is busy and has not read the answer.
 */
const halfSilence = Duration.millis(750)
/** Of an idle connection, in milliseconds. */
const keepAliveMillis = 5_000

/** A worker node, watched by a heartbeat on a connection of its own. */
export interface NodeWatch {
  /** Opens a socket to the node, which breaks when the node falls silent. Throws while it is silent. */
  readonly stream: () => Socket
  /** Fails at once while the node is silent, so that nobody waits for it. */
  readonly check: Effect.Effect<void, SqlError.SqlError>
}

/**
 * Watches a node until the scope closes. When the node does not answer, although it neither refuses nor closes connections, all
 * sockets to it are destroyed: what waits for the node fails then, and holds up nobody else.
 *
 * @param url the URL of the database on the node
 */
export const make = Effect.fnUntraced(function* (url: Redacted.Redacted<string>, node: Exclude<Node, "coordinator">) {
  const name = `${node.host}:${node.port}`
  const silence = new Error(`The node ${name} does not answer`)
  const sockets = new Set<Socket>()
  let isSilent = false

  const open = () => {
    const socket = connect({ ...node, noDelay: true, keepAlive: true, keepAliveInitialDelay: keepAliveMillis })
    sockets.add(socket)
    socket.once("close", () => sockets.delete(socket))
    return socket
  }
  const fallSilent = Effect.suspend(() => {
    const isNew = !isSilent
    isSilent = true
    for (const socket of sockets) socket.destroy(silence)
    return isNew ? Effect.logWarning(`${silence.message}; its buckets are unavailable until it does`) : Effect.void
  })
  const answered = Effect.suspend(() => {
    if (!isSilent) return Effect.void
    isSilent = false
    return Effect.logInfo(`The node ${name} answers again`)
  })
  /** Asks the node. Any answer will do, and so will a refused connection: statements fail at once then. */
  const ask = <A, E, R>(question: Effect.Effect<A, E, R>) =>
    Effect.gen(function* () {
      let isLate = false
      const watchdog = yield* Effect.sleep(halfSilence).pipe(
        Effect.andThen(Effect.sleep(halfSilence)),
        Effect.andThen(Effect.sync(() => (isLate = true))),
        Effect.andThen(fallSilent),
        Effect.forkChild,
      )
      const exit = yield* Effect.exit(question)
      if (!isLate) yield* Effect.andThen(Fiber.interrupt(watchdog), answered)
      return yield* exit
    })

  const heartbeat = Effect.gen(function* () {
    const config = { ...poolConfig(url), applicationName: "gatehouse heartbeat", stream: open }
    const connection = yield* ask(PgConnection.make(config))
    yield* Effect.repeat(ask(connection.query("SELECT 1")), Schedule.spaced(heartbeatInterval))
  }).pipe(Effect.scoped, Effect.exit, Effect.tap(logFailure(name)))
  yield* Effect.forkScoped(Effect.repeat(heartbeat, Schedule.spaced(heartbeatInterval)))

  return {
    stream: () => {
      if (isSilent) throw silence
      return open()
    },
    check: Effect.suspend(() => (isSilent ? Effect.fail(silent(silence)) : Effect.void)),
  } satisfies NodeWatch
})

const logFailure = (name: string) => (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit) ? Effect.logDebug(`The heartbeat of the node ${name} failed`, exit.cause) : Effect.void

const silent = (cause: Error) =>
  new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause, message: cause.message, operation: "reserve" }),
  })
