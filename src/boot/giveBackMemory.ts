import { Effect } from "effect"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

let collectGarbage: (() => void) | undefined

/**
 * Gives back memory that V8 would keep until the heap grows: what starting has left behind (the texts of modules above all,
 * a third of the memory at rest), and what a large body has. Takes some 50 milliseconds.
 */
export const giveBackMemory = Effect.sync(() => {
  if (collectGarbage === undefined) {
    setFlagsFromString("--expose-gc")
    collectGarbage = runInNewContext("gc") as () => void
  }
  collectGarbage()
})
