import { Effect } from "effect"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

let collectGarbage: (() => void) | undefined

/**
 * Runs a full garbage collection, which takes about 50 milliseconds. V8 would otherwise keep the garbage of the start (a
 * third of the idle process's memory, mostly the source text of modules) and of large bodies until the heap grows.
 */
export const releaseMemory = Effect.sync(() => {
  if (collectGarbage === undefined) {
    setFlagsFromString("--expose-gc")
    collectGarbage = runInNewContext("gc") as () => void
  }
  collectGarbage()
})
