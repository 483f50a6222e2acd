import { parentPort, workerData } from "node:worker_threads"
import type { Page } from "../../domain/docs/DocsPassages.ts"
import { type DocsIndex, indexing, type SearchOptions } from "../../domain/docs/DocsSearch.ts"
import { faultPlace } from "../../domain/Errors.ts"
import { lowerPriority, type ThreadCall, type ThreadReply } from "../workerThread.ts"

/**
 * The data of the thread that indexes and searches documentation, which takes seconds of CPU time. The thread has a
 * heap limit of its own.
 */
export interface IndexThreadData {
  /** Whether its indexes are large. They take seconds, so their thread gives way to others. */
  readonly isBackground: boolean
}

/** A task for the index of an id. `add` (pages that will be indexed) and `drop` have no reply. */
export type IndexTask =
  | { readonly op: "add"; readonly pages: ReadonlyArray<Page> }
  // With the number of pages that were added, because a thread that ended in between has lost some; and with the limit
  // of the memory of the index.
  | { readonly op: "index"; readonly pages: number; readonly maxBytes: number }
  | { readonly op: "search"; readonly question: string; readonly options: SearchOptions }
  | { readonly op: "page"; readonly slug: string }
  | { readonly op: "drop" }

/** The size of a finished index. */
export type IndexSize = Pick<DocsIndex, "bytes" | "isWhole">

/** Indexing pauses for other tasks after this time. */
const sliceMillis = 10

const { isBackground } = workerData as IndexThreadData
if (isBackground) lowerPriority()
const indexes = new Map<number, DocsIndex>()
/** The pages of indexes that are not built yet. */
const added = new Map<number, Array<Page>>()
/** The ids of the indexes that are being built. */
const unfinished = new Set<number>()

const otherTasks = () => new Promise((resolve) => setImmediate(resolve))

const reply = (message: ThreadReply) => parentPort!.postMessage(message)

/** Builds an index, unless it is dropped before the end. */
const build = async (id: number, count: number, maxBytes: number) => {
  const pages = added.get(id) ?? []
  added.delete(id)
  if (pages.length !== count) return
  const steps = indexing(pages, maxBytes)
  unfinished.add(id)
  for (let end = 0; unfinished.has(id);) {
    const step = steps.next()
    if (step.done) {
      unfinished.delete(id)
      indexes.set(id, step.value)
      return
    }
    if (performance.now() < end) continue
    await otherTasks()
    end = performance.now() + sliceMillis
  }
}

const valueOf = (index: DocsIndex, task: IndexTask) => {
  if (task.op === "search") return index.search(task.question, task.options)
  if (task.op === "page") return index.page(task.slug)
  return { bytes: index.bytes, isWhole: index.isWhole } satisfies IndexSize
}

parentPort!.on("message", async ({ call, id, task }: ThreadCall<IndexTask>) => {
  if (task.op === "add") {
    const pages = added.get(id) ?? []
    pages.push(...task.pages)
    added.set(id, pages)
    return
  }
  if (task.op === "drop") {
    added.delete(id)
    unfinished.delete(id)
    indexes.delete(id)
    return
  }
  try {
    if (task.op === "index") await build(id, task.pages, task.maxBytes)
    const index = indexes.get(id)
    reply(index === undefined ? { call, lost: true } : { call, value: valueOf(index, task) })
  } catch (error) {
    // An error would end the thread with the indexes of others.
    unfinished.delete(id)
    reply({ call, fault: faultPlace(error) })
  }
})
