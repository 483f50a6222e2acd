import { Effect } from "effect"
import { totalmem } from "node:os"
import { getHeapStatistics, setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

const KiB = 1024
const MiB = 1024 * KiB

/**
 * Memory limit of the process in bytes: the smallest of the cgroup's limit, the machine's memory and V8's heap limit.
 */
export const memoryLimit = (): number =>
  // constrainedMemory: 0 is unknown; without a cgroup limit it exceeds every machine's memory.
  Math.min(process.constrainedMemory() || Infinity, totalmem(), getHeapStatistics().heap_size_limit)

const clamp = (minimum: number, value: number, maximum: number) =>
  Math.min(Math.max(Math.floor(value), minimum), maximum)

/** Size limits of the caches, for a process with a memory limit of `limit` bytes. */
export const cachesWithin = (limit: number) => ({
  /** Number of valid keys, half a kilobyte each: an eighth of the memory, 1,000 to 100,000 keys. */
  keys: clamp(1_000, limit / 8 / (KiB / 2), 100_000),
  /** Bytes of documentation indexes, in use and cached: a quarter of the memory, 16 to 80 MiB. */
  indexes: clamp(16 * MiB, limit / 4, 80 * MiB),
  /** Bytes of chat bodies until their documentation is indexed: a sixteenth of the memory, 8 to 16 MiB. */
  chatBodies: clamp(8 * MiB, limit / 16, 16 * MiB),
  /** Bytes of documents fetched from URLs: a sixteenth of the memory, 8 to 128 MiB. */
  documents: clamp(8 * MiB, limit / 16, 128 * MiB),
})

let collectGarbage: (() => void) | undefined

/**
 * Runs a full garbage collection, which takes about 50 milliseconds. V8 would otherwise keep the garbage of the start
 * (a third of the idle process's memory, mostly the source text of modules) and of large bodies until the heap grows.
 */
export const releaseMemory = Effect.sync(() => {
  if (collectGarbage === undefined) {
    setFlagsFromString("--expose-gc")
    collectGarbage = runInNewContext("gc") as () => void
  }
  collectGarbage()
})
