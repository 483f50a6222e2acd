import { Effect } from "effect"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

/**
 * Gives back what starting has left behind, the texts of modules above all: a third of the memory at rest, which V8 would
 * keep until the heap grows. Takes some 50 milliseconds, once.
 */
export const giveBackMemory = Effect.sync(() => {
  setFlagsFromString("--expose-gc")
  const collectGarbage = runInNewContext("gc") as () => void
  collectGarbage()
})
