import { Deferred, Effect } from "effect"
import { FetchHttpClient } from "effect/http"
import { type Handler, loop } from "./workerLoop.ts"

export { type Handler, type Heartbeat, JobFailed, type LogLevel, type WorkerJob } from "./workerLoop.ts"

export interface WorkerOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly baseUrl: string | URL
  /** An API key of the org or of a project of it. */
  readonly key: string
  /** The handler of each workflow, up to 20. */
  readonly handlers: Readonly<Record<string, Handler>>
  /** The maximum of jobs at the same time. Default: 10. */
  readonly concurrency?: number
  /**
   * How long a claim is valid without a heartbeat, in seconds, 1 to 3600. The worker extends it in time. Default: 60.
   */
  readonly leaseSeconds?: number
  /** How long a claim waits for a job, in seconds, 0 to 30. Default: 20. */
  readonly waitSeconds?: number
  /** How long a stop waits for jobs in flight, in seconds. Then their signals are aborted. Default: 30. */
  readonly graceSeconds?: number
  /** The signals that stop the worker. Default: SIGTERM and SIGINT. */
  readonly signals?: ReadonlyArray<NodeJS.Signals>
  /** Receives what goes wrong: requests that fail, and jobs that are lost. Default: writes to standard error. */
  readonly onError?: (error: Error, jobId: string | undefined) => void
}

export interface Worker {
  /** Claims no more jobs, waits for those in flight, and resolves like `done`. */
  readonly stop: () => Promise<void>
  /** Resolves when the worker has stopped. Rejects when the service refuses it, as with a wrong key. */
  readonly done: Promise<void>
}

const maxWorkflows = 20

const logError = (error: Error, jobId: string | undefined) =>
  process.stderr.write(`gatehouse worker${jobId === undefined ? "" : `, job ${jobId}`}: ${error.message}\n`)

/**
 * Starts a worker. It claims jobs, extends their leases, reports results with the fence, and retries failed attempts.
 * SIGTERM stops it: it claims no more jobs and finishes those in flight.
 *
 * @example
 * ```ts
 * import { startWorker } from "gatehouse-server/worker"
 *
 * const worker = startWorker({
 *   baseUrl: "https://gatehouse.example.com",
 *   key: process.env.GATEHOUSE_TOKEN!,
 *   handlers: {
 *     "nightly-report": async (job) => ({ rows: 3, input: job.input }),
 *   },
 * })
 * await worker.done
 * ```
 */
export const startWorker = ({
  baseUrl,
  concurrency = 10,
  graceSeconds = 30,
  handlers,
  key,
  leaseSeconds = 60,
  onError = logError,
  signals = ["SIGTERM", "SIGINT"],
  waitSeconds = 20,
}: WorkerOptions): Worker => {
  const workflows = Object.keys(handlers).length
  if (workflows === 0 || workflows > maxWorkflows) {
    throw new RangeError(`handlers must have 1 to ${maxWorkflows} workflows. Start another worker for the others.`)
  }
  const options = { baseUrl, key, handlers, concurrency, leaseSeconds, waitSeconds, graceSeconds, onError }
  const stopped = Deferred.makeUnsafe<void>()
  const stop = () => {
    for (const signal of signals) process.off(signal, stop)
    Deferred.doneUnsafe(stopped, Effect.void)
    return done
  }
  const done = Effect.runPromise(Effect.provide(loop(options, stopped), FetchHttpClient.layer)).finally(
    () => void stop(),
  )
  for (const signal of signals) process.once(signal, stop)
  return { stop, done }
}
