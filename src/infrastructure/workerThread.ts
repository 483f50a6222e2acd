import { Deferred, Effect } from "effect"
import { getPriority, setPriority } from "node:os"
import { type ResourceLimits, Worker } from "node:worker_threads"
import { faultPlace, Unavailable } from "../domain/Errors.ts"

/** A task, and the number of its call; -1 for a task without a reply. */
export interface ThreadCall<Task> {
  readonly call: number
  /** What the task is for. */
  readonly id: number
  readonly task: Task
}
/** The reply to a call. `lost`: the thread has nothing with the id. `fault`: where the task threw. */
export type ThreadReply =
  | { readonly call: number; readonly value: unknown }
  | { readonly call: number; readonly lost: true }
  | { readonly call: number; readonly fault: string }

interface ThreadOptions {
  /** The path of the module of the thread from this folder, without its extension. */
  readonly module: string
  readonly workerData?: unknown
  readonly resourceLimits: ResourceLimits
  /** The error of calls whose thread ended. */
  readonly lost: string
  /** Called after a thread has ended. */
  readonly onEnd?: () => void
}

/**
 * A thread that does tasks. The first task starts it, and the scope ends it. If it runs out of memory it ends, its
 * calls fail with a 503 and a line in the log, and the next task starts a new thread.
 */
export const make = Effect.fnUntraced(function* <Task>(options: ThreadOptions) {
  const { module, workerData, resourceLimits, onEnd = () => {} } = options
  const source = new URL(`./${module}.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url)
  const lost = Effect.fail(new Unavailable({ error: options.lost }))
  const outcomeOf = (reply: ThreadReply) => {
    if ("value" in reply) return Effect.succeed(reply.value)
    return "lost" in reply ? lost : Effect.andThen(Effect.logError(`A task of ${module} failed`, reply.fault), lost)
  }
  let thread: Worker | undefined
  let calls = 0
  // Bounded by the number of chats: each has one task at a time.
  const waiting = new Map<number, Deferred.Deferred<unknown, Unavailable>>()

  const makeThread = () => {
    const worker = new Worker(source, { workerData, resourceLimits })
    worker.on("message", (reply: ThreadReply) => {
      const answer = waiting.get(reply.call)
      if (answer === undefined) return
      Deferred.doneUnsafe(answer, outcomeOf(reply))
    })
    let fault = "stopped"
    // `exit` follows.
    worker.on("error", (cause) => void (fault = faultPlace(cause)))
    worker.on("exit", () => {
      thread = undefined
      // One line for all that waited.
      let outcome = Effect.andThen(Effect.logWarning(`The thread of ${module} has ended`, fault), lost)
      for (const answer of waiting.values()) {
        Deferred.doneUnsafe(answer, outcome)
        outcome = lost
      }
      onEnd()
    })
    worker.unref()
    return worker
  }
  const running = () => (thread ??= makeThread())
  const post = (message: ThreadCall<Task>) => running().postMessage(message)

  yield* Effect.addFinalizer(() => Effect.promise(async () => thread?.terminate()))

  return {
    /** Starts the thread if it does not run, so that the first task does not wait for the start. */
    start: () => void running(),
    /** Sends a task to the thread and waits for the reply. */
    ask: <A>(id: number, task: Task): Effect.Effect<A, Unavailable> =>
      Effect.suspend(() => {
        const call = calls++
        const answer = Deferred.makeUnsafe<unknown, Unavailable>()
        waiting.set(call, answer)
        post({ call, id, task })
        // The process does not end while a call waits.
        thread?.ref()
        return Effect.ensuring(
          Deferred.await(answer) as Effect.Effect<A, Unavailable>,
          Effect.sync(() => {
            waiting.delete(call)
            if (waiting.size === 0) thread?.unref()
          }),
        )
      }),
    /** Sends a task without a reply. */
    send: (id: number, task: Task) => post({ call: -1, id, task }),
    /** Sends a task without a reply, unless the thread has not started. */
    sendIfRunning: (id: number, task: Task) => thread?.postMessage({ call: -1, id, task } satisfies ThreadCall<Task>),
  }
})

/**
 * How far the niceness of a background thread is raised. At ten steps it gets a tenth of the CPU time of another busy
 * thread.
 */
const steps = 10
/** The lowest priority that Linux has. */
const nicest = 19

/**
 * Lowers the priority of this thread, so that it uses only CPU time that others leave. Without it, a process with one
 * core responds late while it unpacks or indexes, because each such thread gets as much CPU time as the main thread.
 * Only Linux has priorities of threads; elsewhere this would change the whole process.
 */
export const lowerPriority = () => {
  if (process.platform !== "linux") return
  try {
    setPriority(Math.min(getPriority() + steps, nicest))
  } catch {
    // A sandbox may forbid it. The work is the same.
  }
}
