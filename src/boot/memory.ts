import { totalmem } from "node:os"
import { getHeapStatistics } from "node:v8"

const KiB = 1024
const MiB = 1024 * KiB

/** How many bytes of memory the process may have: the least of its cgroup's limit, the machine's memory and V8's heap. */
export const memoryLimit = (): number =>
  // 0: unknown. Without a cgroup's limit it is a number that is larger than every machine's memory.
  Math.min(process.constrainedMemory() || Infinity, totalmem(), getHeapStatistics().heap_size_limit)

const between = (least: number, bytes: number, most: number) => Math.min(Math.max(Math.floor(bytes), least), most)

/** What the caches take at most of so much memory, in bytes; of the keys, how many. */
export const cachesWithin = (limit: number) => ({
  /** Valid keys, at half a kilobyte each: an eighth of the memory, 100,000 of them at most. */
  keys: between(1_000, limit / 8 / (KiB / 2), 100_000),
  /** Indexes of documentation, in use and kept: a quarter, 16 to 80 MiB. */
  indexes: between(16 * MiB, limit / 4, 80 * MiB),
  /** Bodies of chats until their documentation is indexed: a sixteenth, 8 to 16 MiB. */
  chatBodies: between(8 * MiB, limit / 16, 16 * MiB),
  /** Documents behind URLs: a sixteenth, 8 to 128 MiB. */
  documents: between(8 * MiB, limit / 16, 128 * MiB),
})
