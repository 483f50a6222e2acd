import { PGlite } from "@electric-sql/pglite"
import { renameSync } from "node:fs"
import { dirname } from "node:path"
import { setFlagsFromString } from "node:v8"
import { parentPort, workerData } from "node:worker_threads"
import { DurableNodeFS, startParams, sync, syncTree } from "./EmbeddedStorage.ts"

/**
 * The thread that PostgreSQL runs in. It takes frontend messages and answers each with the backend messages they gave.
 * A thread of its own, because the engine is synchronous: a slow query or disk must hold up no request that does not
 * need it, the stack must be deep enough for the deepest JSON, and an engine that panics must end, not go on.
 */
export interface EmbeddedTask {
  /** The database's folder; absent: in memory. */
  readonly folder?: string | undefined
  /** Make a database in this folder, put it on the disk, give it the folder's name, and end. */
  readonly unfinished?: string | undefined
}

/** What the thread says: that it serves, why it cannot go on, or an answer. */
export type EmbeddedReply = "open" | { readonly fault: string } | Uint8Array

const reply = (message: EmbeddedReply, transfer: Array<ArrayBuffer> = []) => parentPort!.postMessage(message, transfer)

// V8 is not to optimize the engine (nor other WebAssembly of the process, loaded later): for PostgreSQL's parser, a single
// function of a hundred kilobytes, it would take 600 MiB at every start, which a small machine does not survive.
setFlagsFromString("--no-wasm-tier-up")
setFlagsFromString("--no-wasm-dynamic-tiering")

const options = {
  startParams,
  onStderr: (line: string) => {
    if (/\b(FATAL|PANIC):/.test(line)) reply({ fault: line.replace(/^.*?(FATAL|PANIC): +/, "") })
    return false
  },
}

/** Serves until told to close. */
const serve = async (folder: string | undefined) => {
  const pglite = await PGlite.create(folder === undefined ? options : { ...options, fs: new DurableNodeFS(folder) })
  // The engine swallows every exception and goes on. Any but PostgreSQL's own error jump leaves it in no known state.
  const engine = pglite.Module as unknown as { _PostgresMainLoopOnce: () => void }
  const once = engine._PostgresMainLoopOnce
  engine._PostgresMainLoopOnce = () => {
    try {
      once()
    } catch (error) {
      if ((error as { status?: number }).status !== ERROR_JUMP) {
        reply({ fault: String(error) })
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
    // The variant that returns the answer also keeps it, parsed, for ever; this one keeps nothing.
    void pglite.execProtocolRawStream(frames, { syncToFs: false, onRawData: (bytes) => parts.push(bytes.slice()) })
    const answer = new Uint8Array(Buffer.concat(parts))
    reply(answer, [answer.buffer])
  })
  reply("open")
}

const ERROR_JUMP = 100

/** Makes a database such that it is either not there or whole, also after a power cut. */
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
  reply({ fault: String(error) })
  process.exit(1) // what is left of the engine may keep the thread
}
