import { PGlite } from "@electric-sql/pglite"
import { renameSync } from "node:fs"
import { dirname } from "node:path"
import { setFlagsFromString } from "node:v8"
import { parentPort, workerData } from "node:worker_threads"
import { describeFault, DurableNodeFS, startParams, sync, syncTree } from "./EmbeddedStorage.ts"

/**
 * The task of the thread that runs PostgreSQL and answers frontend messages with backend messages. It is a thread of
 * its own because the engine is synchronous: a slow query or disk must not block other requests. The thread also has a
 * stack for the deepest JSON, and ends if the engine panics.
 */
export interface EmbeddedTask {
  /** The folder of the database. Default: in memory. */
  readonly folder?: string | undefined
  /** If set: create a database in this folder, sync it to disk, rename it to `folder`, and end. */
  readonly unfinished?: string | undefined
}

/** A message of the thread: it is ready, it cannot continue, or an answer. */
export type EmbeddedReply = "open" | { readonly fault: string } | Uint8Array

const reply = (message: EmbeddedReply, transfer: Array<ArrayBuffer> = []) => parentPort!.postMessage(message, transfer)

// V8 must not optimize the engine, nor other WebAssembly that the process loads later. For PostgreSQL's parser, a
// single function of 100 kB, the optimizer needs 600 MiB at every start, more than a small machine has.
setFlagsFromString("--no-wasm-tier-up")
setFlagsFromString("--no-wasm-dynamic-tiering")

const options = {
  startParams,
  onStderr: (line: string) => {
    if (/\b(FATAL|PANIC):/.test(line)) reply({ fault: line.replace(/^.*?(FATAL|PANIC): +/, "") })
    return false
  },
}

/** Answers messages until `close`. */
const serve = async (folder: string | undefined) => {
  const pglite = await PGlite.create(folder === undefined ? options : { ...options, fs: new DurableNodeFS(folder) })
  // The engine ignores every exception. After any but PostgreSQL's own error jump its state is undefined, so the thread
  // ends.
  const engine = pglite.Module as unknown as { _PostgresMainLoopOnce: () => void }
  const once = engine._PostgresMainLoopOnce
  engine._PostgresMainLoopOnce = () => {
    try {
      once()
    } catch (error) {
      if ((error as { status?: number }).status !== ERROR_JUMP) {
        reply({ fault: describeFault(error) })
        process.exit(1)
      }
      throw error
    }
  }
  parentPort!.on("message", (frames: Uint8Array | "close") => {
    if (frames === "close") {
      void pglite.close().finally(() => process.exit(0))
      return
    }
    const parts: Array<Uint8Array> = []
    // The variant that returns the answer also keeps it in memory forever.
    void pglite.execProtocolRawStream(frames, { syncToFs: false, onRawData: (bytes) => parts.push(bytes.slice()) })
    const answer = new Uint8Array(Buffer.concat(parts))
    reply(answer, [answer.buffer])
  })
  reply("open")
}

const ERROR_JUMP = 100

/** Creates a database. After a power cut it either does not exist or is complete. */
const create = async (folder: string, unfinished: string) => {
  const pglite = await PGlite.create({ ...options, dataDir: unfinished })
  await pglite.close()
  await syncTree(unfinished)
  renameSync(unfinished, folder)
  await sync(dirname(folder))
}

const { folder, unfinished } = workerData as EmbeddedTask
try {
  await (folder !== undefined && unfinished !== undefined ? create(folder, unfinished) : serve(folder))
} catch (error) {
  reply({ fault: describeFault(error) })
  process.exit(1) // the rest of the engine may keep the thread alive
}
