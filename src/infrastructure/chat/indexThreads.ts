import { Deferred, Effect } from "effect"
import { Worker } from "node:worker_threads"
import type { Page } from "../../domain/chat/DocsPassages.ts"
import { Unavailable } from "../../domain/Errors.ts"
import type { IndexCall, IndexReply, IndexTask, IndexThreadData } from "./IndexThread.ts"

const MiB = 1024 * 1024
/** Heap of the thread besides its indexes: code, and garbage of indexing. */
const heapOverheadBytes = 24 * MiB

const source = new URL(`./IndexThread.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url)

const lost = new Unavailable({ error: "The index of the documentation was lost; try again." })

/**
 * A thread that builds and keeps indexes by id. The first task starts it, and the scope ends it. If it runs out of memory it
 * ends with its indexes, and the next task starts a new thread.
 *
 * @param limits maxBytes: limit of the memory of all indexes; maxIndexBytes: of one index
 * @param onEnd called after a thread and its indexes have ended
 */
export const make = Effect.fnUntraced(function* (
  { maxBytes, maxIndexBytes }: { readonly maxBytes: number; readonly maxIndexBytes: number },
  onEnd: () => void,
) {
  let thread: Worker | undefined
  let calls = 0
  // Bounded by the number of chats: each has one task at a time.
  const waiting = new Map<number, Deferred.Deferred<unknown, Unavailable>>()

  const start = () => {
    const worker = new Worker(source, {
      workerData: { maxBytes: maxIndexBytes } satisfies IndexThreadData,
      resourceLimits: {
        maxOldGenerationSizeMb: Math.ceil((maxBytes + heapOverheadBytes) / MiB),
        maxYoungGenerationSizeMb: 8,
      },
    })
    worker.on("message", (reply: IndexReply) => {
      const answer = waiting.get(reply.call)
      if (answer === undefined) return
      Deferred.doneUnsafe(answer, "lost" in reply ? Effect.fail(lost) : Effect.succeed(reply.value))
    })
    // Without a listener the error would be an uncaught exception. `exit` follows.
    worker.on("error", () => {})
    worker.on("exit", () => {
      thread = undefined
      for (const answer of waiting.values()) Deferred.doneUnsafe(answer, Effect.fail(lost))
      onEnd()
    })
    worker.unref()
    return worker
  }
  const post = (message: IndexCall) => (thread ??= start()).postMessage(message)

  yield* Effect.addFinalizer(() => Effect.promise(async () => thread?.terminate()))

  /** Sends a task to the thread and waits for its answer. */
  const ask = <A>(id: number, task: IndexTask): Effect.Effect<A, Unavailable> =>
    Effect.suspend(() => {
      const call = calls++
      const answer = Deferred.makeUnsafe<unknown, Unavailable>()
      waiting.set(call, answer)
      post({ call, id, task })
      return Effect.ensuring(
        Deferred.await(answer) as Effect.Effect<A, Unavailable>,
        Effect.sync(() => waiting.delete(call)),
      )
    })

  /** Adds pages to those of an index that is not built yet. */
  const addPages = (id: number, pages: ReadonlyArray<Page>) =>
    Effect.sync(() => post({ call: -1, id, task: { op: "add", pages } }))

  /** Drops an index, or stops building it. */
  const drop = (id: number) => thread?.postMessage({ call: -1, id, task: { op: "drop" } } satisfies IndexCall)

  return { addPages, ask, drop }
})
