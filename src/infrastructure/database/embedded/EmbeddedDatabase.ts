import { Effect, type Scope } from "effect"
import type { Duplex } from "node:stream"
import { Worker } from "node:worker_threads"
import * as DataFolder from "./DataFolder.ts"
import { EmbeddedSession, type Engine } from "./EmbeddedSession.ts"
import type { EmbeddedReply, EmbeddedTask } from "./EmbeddedWorker.ts"
import { StartupError } from "../../StartupError.ts"

/** PostgreSQL inside this process, spoken to over byte streams as if over sockets. */
export interface EmbeddedDatabase {
  /** A stream that speaks the PostgreSQL protocol. The engine has one session: the next is served when this one ends. */
  readonly connect: () => Duplex
  /** Calls back for each notification heard, and when the engine, and so its LISTENs, is lost. Gives how to stop. */
  readonly subscribe: (subscriber: Subscriber) => () => void
}

export interface Subscriber {
  readonly onNotification: (channel: string, payload: string) => void
  readonly onLost: (cause: Error) => void
}

/**
 * Starts the embedded database, and closes it when the scope does. An engine that panics is started again, on the data
 * as they were committed, for the session after.
 * Takes DATA_DIR, or `memory` for a database that is gone with the process.
 */
export const make: (dataDir: string) => Effect.Effect<EmbeddedDatabase, StartupError, Scope.Scope> = Effect.fn(
  "EmbeddedDatabase.make",
)(function* (dataDir: string) {
  const inMemory = dataDir === "memory"
  const { exists, folder } = inMemory ? { exists: true, folder: undefined } : yield* DataFolder.acquire(dataDir)
  const failed = (cause: unknown) =>
    new StartupError({
      message: `The database in DATA_DIR ${dataDir} cannot be opened: ${(cause as Error).message}`,
      cause,
    })
  if (folder !== undefined && !exists) {
    // Making it takes a second engine; on a thread of its own its memory is given back.
    yield* Effect.tryPromise({
      try: () => startThread({ folder, unfinished: DataFolder.unfinished(folder) }).ended,
      catch: failed,
    })
  }

  const subscribers = new Set<Subscriber>()
  let closing = false
  let current: Thread | undefined
  const engine = (): Promise<Engine> => {
    if (current === undefined) {
      const thread = startThread({ folder })
      current = thread
      thread.ended.catch((cause: Error) => {
        // What was in memory is lost with the engine; a new one would pass for an empty database.
        if (!inMemory) current = undefined
        // A copy: who is told may connect again, and is not to be told of the same loss twice.
        for (const { onLost } of [...subscribers]) onLost(cause)
      })
    }
    return closing ? Promise.reject(new Error("The embedded database is closed")) : current.opened
  }
  yield* Effect.acquireRelease(Effect.tryPromise({ try: engine, catch: failed }), () =>
    Effect.promise(async () => {
      closing = true
      current?.worker.postMessage("close")
      await current?.ended.catch(() => {})
    }),
  )

  let turn: Promise<void> = Promise.resolve()
  return {
    connect: () => {
      const session = new EmbeddedSession({
        // The driver may retire a session and open another before the first has ended.
        takeTurn: (ended) => {
          const mine = turn.then(engine)
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

interface Thread {
  readonly worker: Worker
  readonly opened: Promise<Engine>
  /** Settles when the thread is over; rejects with the reason when that was not asked for. */
  readonly ended: Promise<void>
}

/** Deep enough for the deepest JSON that a request can carry; the pages are only taken when used. */
const STACK_MIB = 128

const startThread = (task: EmbeddedTask): Thread => {
  const source = `./EmbeddedWorker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`
  const worker = new Worker(new URL(source, import.meta.url), {
    workerData: task,
    resourceLimits: { stackSizeMb: STACK_MIB },
  })
  const opened = Promise.withResolvers<Engine>()
  const ended = Promise.withResolvers<void>()
  const waiting: Array<PromiseWithResolvers<Uint8Array>> = []
  let fault: string | undefined
  let over: Error | undefined

  worker.on("message", (reply: EmbeddedReply) => {
    if (reply instanceof Uint8Array) waiting.shift()!.resolve(reply)
    else if (reply === "open")
      opened.resolve((frames) => {
        const answer = Promise.withResolvers<Uint8Array>()
        if (over !== undefined) answer.reject(over)
        else {
          waiting.push(answer)
          const copy = new Uint8Array(frames) // a Buffer would take all of its pool along
          worker.postMessage(copy, [copy.buffer])
        }
        return answer.promise
      })
    else fault ??= reply.fault // the first is the reason, the others its consequences
  })
  worker.on("error", (error) => (fault ??= String(error)))
  worker.on("exit", (code) => {
    over = new Error(`The embedded database stopped: ${fault ?? `its thread ended with ${code}`}`)
    opened.reject(over)
    for (const { reject } of waiting.splice(0)) reject(over)
    if (code === 0) ended.resolve()
    else ended.reject(over)
  })
  opened.promise.catch(() => {})
  ended.promise.catch(() => {})
  return { worker, opened: opened.promise, ended: ended.promise }
}
