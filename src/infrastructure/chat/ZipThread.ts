import { createHash } from "node:crypto"
import { parentPort, workerData } from "node:worker_threads"
import { lowerPriority } from "./lowPriority.ts"
import type { ThreadCall, ThreadReply } from "./workerThread.ts"
import { readPages, refusalOf, type ZippedPage } from "./zipPages.ts"

export interface ZipThreadData {
  /** Limit of the pages of a zip. */
  readonly maxPages: number
}

/** A task for the zip of an id. `close` has no answer. */
export type ZipTask =
  | { readonly op: "open"; readonly bytes: Uint8Array }
  | { readonly op: "next" }
  | { readonly op: "close" }

/** The next pages of a zip, none at its end; or what is wrong with it. */
export type ZipBatch =
  | { readonly pages: ReadonlyArray<ZippedPage>; readonly fault?: never }
  | { readonly fault: string; readonly pages?: never }

/** The bytes of a batch; each batch holds up other requests while it is decoded. */
const batchLength = 256 * 1024

lowerPriority()
const { maxPages } = workerData as ZipThreadData
const readers = new Map<number, AsyncGenerator<ZippedPage>>()

const nextBatch = async (reader: AsyncGenerator<ZippedPage>): Promise<ZipBatch> => {
  const pages: Array<ZippedPage> = []
  try {
    for (let length = 0; length < batchLength;) {
      const { done, value } = await reader.next()
      if (done === true) break
      pages.push(value)
      length += value.content.length
    }
    return { pages }
  } catch (error) {
    return { fault: refusalOf(error) }
  }
}

const reply = (message: ThreadReply, transfer: ReadonlyArray<ArrayBuffer> = []) =>
  parentPort!.postMessage(message, [...transfer])

parentPort!.on("message", async ({ call, id, task }: ThreadCall<ZipTask>) => {
  if (task.op === "close") {
    const reader = readers.get(id)
    readers.delete(id)
    await reader?.return(undefined)
    return
  }
  if (task.op === "open") {
    readers.set(id, readPages(task.bytes, maxPages))
    return reply({ call, value: createHash("sha256").update(task.bytes).digest("hex") })
  }
  const reader = readers.get(id)
  if (reader === undefined) return reply({ call, lost: true })
  const batch = await nextBatch(reader)
  reply(
    { call, value: batch },
    batch.pages?.map(({ content }) => content.buffer),
  )
})
