import { parentPort, workerData } from "node:worker_threads"
import type { Page } from "../../domain/chat/DocsPassages.ts"
import { type DocsIndex, indexing, type SearchOptions } from "../../domain/chat/DocsSearch.ts"

/**
 * The thread that documentation is indexed and searched in: it takes seconds of CPU, and a heap that is bounded apart
 * from the heap of the service.
 */
export interface IndexThreadData {
  /** How many bytes of memory one index may take. */
  readonly maxBytes: number
}

/** What the thread is asked to do with the index of an id. `drop` is not answered. */
export type IndexTask =
  | { readonly op: "index"; readonly pages: ReadonlyArray<Page> }
  | { readonly op: "search"; readonly question: string; readonly options: SearchOptions }
  | { readonly op: "page"; readonly slug: string }
  | { readonly op: "drop" }

/** An index that has been made. */
export type IndexSize = Pick<DocsIndex, "bytes" | "isWhole">

export interface IndexCall {
  readonly call: number
  readonly id: number
  readonly task: IndexTask
}
/** The answer to a call; `lost` when there is no such index. */
export type IndexReply =
  | { readonly call: number; readonly value: unknown }
  | { readonly call: number; readonly lost: true }

/** How long indexing goes on, in milliseconds, before other tasks have their turn. */
const sliceMillis = 10

const { maxBytes } = workerData as IndexThreadData
const indexes = new Map<number, DocsIndex>()
/** The indexes in the making. */
const unfinished = new Set<number>()

const turn = () => new Promise((resolve) => setImmediate(resolve))

const reply = (message: IndexReply) => parentPort!.postMessage(message)

/** Makes an index, unless it is dropped meanwhile. */
const make = async (id: number, pages: ReadonlyArray<Page>) => {
  unfinished.add(id)
  const steps = indexing(pages, maxBytes)
  for (let end = 0; unfinished.has(id);) {
    const step = steps.next()
    if (step.done) {
      unfinished.delete(id)
      indexes.set(id, step.value)
      return
    }
    if (performance.now() < end) continue
    await turn()
    end = performance.now() + sliceMillis
  }
}

parentPort!.on("message", async ({ call, id, task }: IndexCall) => {
  if (task.op === "drop") {
    unfinished.delete(id)
    indexes.delete(id)
    return
  }
  if (task.op === "index") await make(id, task.pages)
  const index = indexes.get(id)
  if (index === undefined) reply({ call, lost: true })
  else if (task.op === "search") reply({ call, value: index.search(task.question, task.options) })
  else if (task.op === "page") reply({ call, value: index.page(task.slug) })
  else reply({ call, value: { bytes: index.bytes, isWhole: index.isWhole } satisfies IndexSize })
})
