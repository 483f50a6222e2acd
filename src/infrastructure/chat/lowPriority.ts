import { getPriority, setPriority } from "node:os"

/** How much nicer a thread of background work is. Ten steps leave it a tenth of the CPU time that a busy other thread has. */
const steps = 10
/** The lowest priority that Linux has. */
const nicest = 19

/**
 * Lowers the priority of this thread, so that it uses only CPU time that others leave. Without it, a process with one core
 * answers late while it unpacks or indexes: each such thread counts as much as the one that answers. Only Linux has priorities
 * of threads; elsewhere they would be those of the process.
 */
export const lowerPriority = () => {
  if (process.platform !== "linux") return
  try {
    setPriority(Math.min(getPriority() + steps, nicest))
  } catch {
    // A sandbox may forbid it. The work is the same.
  }
}
