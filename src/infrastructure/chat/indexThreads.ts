import { Deferred, Effect } from "effect"
import { Worker } from "node:worker_threads"
import { Unavailable } from "../../domain/Errors.ts"
import type { IndexCall, IndexReply, IndexTask, IndexThreadData } from "./IndexThread.ts"

const MiB = 1024 * 1024
/** What the thread's heap has beside its indexes: code, and the garbage of one that is made. */
const beside = 24 * MiB

const source = new URL(`./IndexThread.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url)

const lost = new Unavailable({ error: "The index of the documentation was lost; try again." })

/**
 * A thread that makes and keeps indexes by their ids. It starts with the first task; one that ends, for want of memory,
 * takes its indexes with it, and the next task starts another. The scope ends it.
 *
 * @param maxBytes how many bytes of memory all indexes together may take
 * @param onEnd is called when a thread has ended with its indexes
 */
export const make = Effect.fnUntraced(function* (maxBytes: number, onEnd: () => void) {
  let thread: Worker | undefined
  let calls = 0
  // Bounded by the chats, each of which has one task at a time.
  const waiting = new Map<number, Deferred.Deferred<unknown, Unavailable>>()

  const start = () => {
    const worker = new Worker(source, {
      workerData: { maxBytes } satisfies IndexThreadData,
      resourceLimits: { maxOldGenerationSizeMb: Math.ceil((maxBytes + beside) / MiB), maxYoungGenerationSizeMb: 8 },
    })
    worker.on("message", (reply: IndexReply) => {
      const asked = waiting.get(reply.call)
      if (asked === undefined) return
      Deferred.doneUnsafe(asked, "lost" in reply ? Effect.fail(lost) : Effect.succeed(reply.value))
    })
    // Without a listener it would be an uncaught exception. `exit` follows.
    worker.on("error", () => {})
    worker.on("exit", () => {
      thread = undefined
      for (const asked of waiting.values()) Deferred.doneUnsafe(asked, Effect.fail(lost))
      onEnd()
    })
    worker.unref()
    return worker
  }
  const post = (message: IndexCall) => (thread ??= start()).postMessage(message)

  yield* Effect.addFinalizer(() => Effect.promise(async () => thread?.terminate()))

  /** Asks the thread and waits for its answer. */
  const ask = <A>(id: number, task: IndexTask): Effect.Effect<A, Unavailable> =>
    Effect.suspend(() => {
      const call = calls++
      const asked = Deferred.makeUnsafe<unknown, Unavailable>()
      waiting.set(call, asked)
      post({ call, id, task })
      return Effect.ensuring(
        Deferred.await(asked) as Effect.Effect<A, Unavailable>,
        Effect.sync(() => waiting.delete(call)),
      )
    })

  /** Drops an index, or stops making it. */
  const drop = (id: number) => thread?.postMessage({ call: -1, id, task: { op: "drop" } } satisfies IndexCall)

  return { ask, drop }
})
