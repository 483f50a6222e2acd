import { Effect, type Scope } from "effect"
import type { Duplex } from "node:stream"
import { Worker } from "node:worker_threads"
import * as DataFolder from "./DataFolder.ts"
import { EmbeddedSession, type Engine } from "./EmbeddedSession.ts"
import type { EmbeddedReply, EmbeddedTask } from "./EmbeddedWorker.ts"
import { StartupError } from "../../StartupError.ts"

/** PostgreSQL inside this process, with byte streams instead of sockets. */
export interface EmbeddedDatabase {
  /**
   * Opens a stream of the PostgreSQL protocol. The engine has one session, so the next stream waits until this one ends.
   */
  readonly connect: () => Duplex
  /** Subscribes to notifications and to the loss of the engine with its LISTENs. Returns a function that unsubscribes. */
  readonly subscribe: (subscriber: Subscriber) => () => void
}

export interface Subscriber {
  readonly onNotification: (channel: string, payload: string) => void
  readonly onLost: (cause: Error) => void
}

/**
 * Starts the embedded database until the scope closes. After a panic the engine is restarted with the committed data for the
 * next session. Fails with a `StartupError`.
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
