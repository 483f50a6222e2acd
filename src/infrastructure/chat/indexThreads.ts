import { Effect } from "effect"
import type { Page } from "../../domain/chat/DocsPassages.ts"
import type { Unavailable } from "../../domain/Errors.ts"
import type { IndexTask, IndexThreadData } from "./IndexThread.ts"
import * as WorkerThread from "./workerThread.ts"

const MiB = 1024 * 1024
/** Heap of the thread besides its indexes: code, and garbage of indexing. */
const heapOverheadBytes = 24 * MiB

/** A thread that builds and keeps indexes by id. */
export interface IndexThread {
  /** Starts the thread if it does not run. */
  readonly start: () => void
  /** Sends a task to the thread and waits for its answer. */
  readonly ask: <A>(id: number, task: IndexTask) => Effect.Effect<A, Unavailable>
  /** Adds pages to those of an index that is not built yet. */
  readonly addPages: (id: number, pages: ReadonlyArray<Page>) => Effect.Effect<void>
  /** Drops an index, or stops building it. */
  readonly drop: (id: number) => void
}

/**
 * Makes a thread for indexes. The first task starts it.
 *
 * @param limits maxBytes: limit of the memory of all indexes; maxIndexBytes: of one index; isBackground: whether
 *   the thread uses only CPU time that others leave
 * @param onEnd called after the thread and its indexes have ended
 */
export const make = Effect.fnUntraced(function* (
  {
    maxBytes,
    maxIndexBytes,
    isBackground,
  }: { readonly maxBytes: number; readonly maxIndexBytes: number; readonly isBackground: boolean },
  onEnd: (ended: IndexThread) => void,
) {
  const worker = yield* WorkerThread.make<IndexTask>({
    module: "IndexThread",
    workerData: { maxBytes: maxIndexBytes, isBackground } satisfies IndexThreadData,
    resourceLimits: {
      maxOldGenerationSizeMb: Math.ceil((maxBytes + heapOverheadBytes) / MiB),
      maxYoungGenerationSizeMb: 8,
    },
    lost: "The index of the documentation was lost; try again.",
    onEnd: () => onEnd(thread),
  })
  const thread: IndexThread = {
    start: worker.start,
    ask: worker.ask,
    addPages: (id, pages) => Effect.sync(() => worker.send(id, { op: "add", pages })),
    drop: (id) => worker.sendIfRunning(id, { op: "drop" }),
  }
  return thread
})
