import { parseJson } from "./numberTexts.ts"
import { backoff, isRefusal, pause, type Post, poster, process, RequestFailed, safely, toError } from "./post.ts"

/** What a worker tells with a heartbeat. */
export interface Heartbeat {
  /** How much of the work is done, 0 to 1. */
  readonly progress?: number
  /** What the worker does now, in words. */
  readonly note?: string
}

export type LogLevel = "debug" | "info" | "warn" | "error"

/** A claimed job, for its handler. */
export interface WorkerJob {
  readonly jobId: string
  readonly workflow: string
  /** Any JSON. Numbers are JavaScript's; an object that is passed on, as in a result, has all their digits. */
  readonly input: unknown
  readonly deploymentId: string | null
  /** How often the job was claimed, with this claim. */
  readonly attempt: number
  /** Aborted when the job is no longer this worker's: it is canceled, its lease is lost, or the worker stops. */
  readonly signal: AbortSignal
  /**
   * Reports progress. The worker extends the lease by itself. What the service does not accept is left out, and a
   * request that fails is repeated; it rejects only when the job is lost.
   */
  readonly heartbeat: (report: Heartbeat) => Promise<void>
  /** Reports how much of the work is done, 0 to 1, and what the worker does now. */
  readonly progress: (progress: number, note?: string) => Promise<void>
  /** Keeps a line with the job. Lines are sent about every second, and before the outcome. */
  readonly log: (text: string, level?: LogLevel) => void
  /**
   * Does a step once: its result is kept with the job as JSON, and this attempt and each other one get that, so that a
   * `Date` is a text in all of them. A step that fails is not kept, and done again by another attempt. One whose result
   * cannot be kept, or whose name the attempt has used, fails the job.
   */
  readonly step: <A>(name: string, work: () => Promise<A>) => Promise<A>
}

/**
 * Does the work of a job. The result becomes the result of the job. An error fails the attempt, and the job is retried.
 */
export type Handler = (job: WorkerJob) => Promise<unknown>

/** The job cannot succeed: it fails without a retry. Throw it in a handler. */
export class JobFailed extends Error {
  override readonly name = "JobFailed"
}

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
  readonly signals?: ReadonlyArray<string>
  /** Receives what goes wrong: requests that fail, and jobs that are lost. Default: writes to standard error. */
  readonly onError?: (error: Error, jobId: string | undefined) => void
  /** Another `fetch`, for tests and proxies. */
  readonly fetch?: typeof globalThis.fetch
}

export interface Worker {
  /** Claims no more jobs, waits for those in flight, and resolves like `done`. */
  readonly stop: () => Promise<void>
  /** Resolves when the worker has stopped. Rejects when the service refuses it, as with a wrong key. */
  readonly done: Promise<void>
}

/** A job in the response of a claim. */
interface ClaimedJob {
  readonly job_id: string
  readonly workflow: string
  readonly input: unknown
  readonly deployment_id: string | null
  readonly attempt: number
}

const maxWorkflows = 20
/** The longest error and stack of a report, in characters. */
const maxErrorLength = 10_000
/** Requests of one report until it is given up. */
const maxReports = 12
/** The jobs of one claim. */
const maxClaimed = 100
/** The pause after a claim without a job, in milliseconds. */
const emptyPause = 200
/** The completions of one request, and their characters, of which one has at most three bytes of 8 MiB. */
const maxCompletions = 1_000
const maxCompletionsLength = 2 * 1024 * 1024
/** The lines of one request, those that wait to be sent, and the characters of one. */
const maxSentLines = 100
const maxWaitingLines = 1_000
const maxLineLength = 2_000
const logLevels: ReadonlyArray<unknown> = ["debug", "info", "warn", "error"]
/** The characters of a note, and of the name of a step. */
const maxNoteLength = 1_000
const maxStepName = 255
/** How long a line waits for others, in milliseconds. */
const lineInterval = 1_000

const logError = (error: Error, jobId: string | undefined) =>
  process.stderr.write(`gatehouse worker${jobId === undefined ? "" : `, job ${jobId}`}: ${error.message}\n`)

/** Text that the service accepts, of at most that many UTF-16 units. It is not cut inside a pair of them. */
const cleanText = (text: string, length = maxErrorLength) => {
  const clean = text.replaceAll("\0", "").toWellFormed()
  return clean.slice(0, length).replace(clean.length > length ? /[\ud800-\udbff]$/ : "", "")
}

/** What somebody has thrown or logged, as text. Never throws itself. */
const textOf = (value: unknown): string => {
  try {
    const { message } = (value ?? {}) as { readonly message?: unknown }
    const text = typeof value === "string" ? value : typeof message === "string" ? message : JSON.stringify(value)
    if (text !== undefined) return text
  } catch {
    // It refers to itself, has a BigInt, or fails when it is read.
  }
  try {
    return String(value)
  } catch {
    return typeof value
  }
}

/** Causes of an error that are reported. */
const maxCauses = 10

/** The error and the stack of a report about what a handler has thrown. */
const failureOf = (thrown: unknown) => {
  const stacks: Array<string> = []
  for (let error = thrown; error instanceof Error && stacks.length < maxCauses; error = error.cause) {
    stacks.push(typeof error.stack === "string" ? error.stack : textOf(error))
  }
  return {
    error: cleanText(textOf(thrown)) || (thrown instanceof Error ? thrown.constructor.name : "The handler failed."),
    mapped_stack: stacks.length === 0 ? null : cleanText(stacks.join("\nCaused by: ")),
  }
}

/** The fields of a heartbeat that the service accepts. */
const cleanHeartbeat = ({ note, progress }: Heartbeat) => ({
  ...(Number.isFinite(progress) ? { progress: Math.min(1, Math.max(0, progress!)) } : {}),
  ...(note === undefined || note === null ? {} : { note: cleanText(textOf(note), maxNoteLength) }),
})

/** The JSON text of a result; `undefined` for `undefined`. Throws `JobFailed` for what is not JSON. */
const jsonOf = (result: unknown): string | undefined => {
  try {
    return JSON.stringify(result)
  } catch (error) {
    throw new JobFailed(`The result is not JSON: ${toError(error).message}`, { cause: error })
  }
}

/** Whether the job belongs to nobody or to another worker. */
const isLost = (error: unknown) =>
  error instanceof RequestFailed && (error.code === "conflict" || error.code === "not_found")

/** Repeats a request that may succeed later. */
const patiently = async <A>(request: () => Promise<A>, signal: AbortSignal): Promise<A> => {
  for (let failures = 0; ; failures++) {
    try {
      return await request()
    } catch (error) {
      if (!(error instanceof RequestFailed && error.isTransient) || failures >= maxReports) throw error
      await pause(backoff(failures, error), signal)
      signal.throwIfAborted()
    }
  }
}

/**
 * Makes what sends what decorates a job, which never decides it: what cannot be stored is left out, and other faults
 * are reported. Throws only when the job is lost, which aborts it.
 */
const makeDecorate =
  (post: Post, job: AbortController, onFault: (error: Error) => void) =>
  async (operation: string, body: object): Promise<void> => {
    const request = () =>
      post(operation, JSON.stringify(body)).catch((error: RequestFailed) => {
        if (error.code !== "limit_reached") throw error
        onFault(error)
      })
    await patiently(request, job.signal).catch((error: Error) => {
      if (isLost(error)) job.abort(new Error(`The job was lost: ${error.message}`))
      else if (!job.signal.aborted) onFault(error)
    })
    job.signal.throwIfAborted()
  }

interface Completion {
  readonly body: string
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** Completes jobs. Those that end at the same time, or while a request is in flight, share a request. */
const makeComplete = (post: Post) => {
  let waiting: Array<Completion> = []
  let isSending = false

  const one = ({ body, reject, resolve }: Completion) => post("jobs/complete", body).then(() => resolve(), reject)

  const many = async (batch: ReadonlyArray<Completion>) => {
    try {
      const { jobs } = await post("jobs/complete-batch", `{"jobs":[${batch.map(({ body }) => body).join()}]}`)
      const outcomes = jobs as ReadonlyArray<{ success: boolean; message: string; code?: string }>
      for (const [n, { reject, resolve }] of batch.entries()) {
        const { code = "", message, success } = outcomes[n]!
        if (success) resolve()
        else reject(new RequestFailed(message, { status: 409, code }))
      }
    } catch (error) {
      // One result that is refused must not fail the others.
      if (isRefusal(error)) {
        await Promise.all(batch.map(one))
      } else for (const { reject } of batch) reject(error)
    }
  }

  const flush = async () => {
    while (waiting.length > 0) {
      let count = 0
      for (let length = 0; count < Math.min(waiting.length, maxCompletions); count++) {
        length += waiting[count]!.body.length
        if (count > 0 && length > maxCompletionsLength) break
      }
      const batch = waiting.slice(0, count)
      waiting = waiting.slice(count)
      await (count === 1 ? one(batch[0]!) : many(batch))
    }
    isSending = false
  }

  return (body: string) =>
    new Promise<void>((resolve, reject) => {
      waiting.push({ body, resolve, reject })
      if (isSending) return
      isSending = true
      setTimeout(() => void flush(), 0)
    })
}

/** The lines that a handler logs: sent about every second, and before the outcome. */
const makeLines = (decorate: ReturnType<typeof makeDecorate>, fence: object) => {
  const waiting: Array<{ readonly at: string; readonly level: LogLevel; readonly text: string }> = []
  let timer: ReturnType<typeof setTimeout> | undefined
  let sent = Promise.resolve()

  const send = async () => {
    while (waiting.length > 0) {
      // Lines of a lost job are nobody's.
      await decorate("jobs/log", { ...fence, lines: waiting.splice(0, maxSentLines) }).catch(() => {})
    }
  }
  const sendAll = () => {
    clearTimeout(timer)
    timer = undefined
    return (sent = sent.then(send))
  }
  const log = (text: string, level: LogLevel = "info") => {
    const known = logLevels.includes(level) ? level : "info"
    waiting.push({ at: new Date().toISOString(), level: known, text: cleanText(textOf(text), maxLineLength) })
    if (waiting.length > maxWaitingLines) waiting.shift()
    timer ??= setTimeout(() => void sendAll(), lineInterval)
  }
  return { log, sendAll }
}

/** Does a step of a job unless an attempt has done it. */
const makeStep = (post: Post, { attempt, job_id }: ClaimedJob, signal: AbortSignal) => {
  let finished: Promise<ReadonlyMap<string, unknown>> | undefined
  /** The names of the steps that this attempt has results of. */
  const used = new Set<string>()
  const read = async () => {
    const { steps } = await patiently(() => post("jobs/get", JSON.stringify({ job_id })), signal)
    return new Map(
      (steps as ReadonlyArray<{ name: string; result: unknown }>).map(({ name, result }) => [name, result]),
    )
  }
  return async <A>(name: string, work: () => Promise<A>): Promise<A> => {
    // A first attempt finds none.
    finished ??= attempt === 1 ? Promise.resolve(new Map<string, unknown>()) : read()
    if (name === "" || cleanText(name, maxStepName) !== name) {
      throw new JobFailed(`The name of a step must be text of 1 to ${maxStepName} characters.`)
    }
    // Otherwise another attempt would take the result of the first one for both.
    if (used.has(name)) throw new JobFailed(`The job has done a step "${name}": each step needs a name of its own.`)
    const known = await finished
    if (known.has(name)) {
      used.add(name)
      return known.get(name) as A
    }
    const result = await work()
    used.add(name)
    const kept = jsonOf(result) ?? "null"
    const keep = () => post("jobs/step", JSON.stringify({ job_id, attempt, name, result }))
    await patiently(keep, signal).catch((error: unknown) => {
      // Each attempt would do the step again, and its result would be refused again.
      if (!isRefusal(error)) throw error
      throw new JobFailed(`The result of the step is not kept: ${error.message}`, { cause: error })
    })
    return parseJson(kept) as A
  }
}

/**
 * Starts a worker. It claims jobs, extends their leases, reports results with the fence, and retries failed attempts.
 * SIGTERM stops it: it claims no more jobs and finishes those in flight.
 *
 * @example
 * ```ts
 * import { startWorker } from "gatehouse-worker"
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
export const startWorker = (options: WorkerOptions): Worker => {
  const { baseUrl, concurrency = 10, graceSeconds = 30, handlers, key, leaseSeconds = 60, waitSeconds = 20 } = options
  const { signals = ["SIGTERM", "SIGINT"] } = options
  const onError = safely(options.onError ?? logError)
  const workflows = Object.keys(handlers)
  if (workflows.length === 0 || workflows.length > maxWorkflows) {
    throw new RangeError(`handlers must have 1 to ${maxWorkflows} workflows. Start another worker for the others.`)
  }
  if (!(Number.isInteger(concurrency) && concurrency >= 1)) throw new RangeError("concurrency must be 1 or more.")
  const post = poster(baseUrl, key, options.fetch)
  const complete = makeComplete(post)
  const stopping = new AbortController()
  const idle = new AbortController()
  /** The jobs in flight: what aborts each. */
  const jobs = new Set<AbortController>()
  let freed = () => {}

  /** Runs the handler of a job; returns what reports its outcome. */
  const handle = async (job: ClaimedJob, abort: AbortController): Promise<() => Promise<unknown>> => {
    const { attempt, deployment_id: deploymentId, input, job_id: jobId, workflow } = job
    const { signal } = abort
    const fence = { job_id: jobId, attempt }
    const decorate = makeDecorate(post, abort, (error) => onError(error, jobId))
    const { log, sendAll } = makeLines(decorate, fence)
    const heartbeat = (report: Heartbeat) =>
      decorate("jobs/heartbeat", { ...fence, lease_seconds: leaseSeconds, ...cleanHeartbeat(report) })
    const progress = (progress: number, note?: string) =>
      heartbeat({ progress, ...(note === undefined ? {} : { note }) })
    const fail = (thrown: unknown, retry: boolean) =>
      post("jobs/fail", JSON.stringify({ ...fence, ...failureOf(thrown), retry }))
    try {
      const step = makeStep(post, job, signal)
      const given = { jobId, workflow, input, deploymentId, attempt, signal, heartbeat, progress, log, step }
      const body = jsonOf({ ...fence, result: await handlers[workflow]!(given) })!
      return () =>
        complete(body).catch((error: RequestFailed) => {
          // A result that the service does not accept is a failure of the job.
          if (error.code === "limit_reached") return fail(new Error(`The result is not stored: ${error.message}`), true)
          if (!isRefusal(error)) throw error
          return fail(new Error(`The result is not accepted: ${error.message}`), false)
        })
    } catch (error) {
      return () => fail(error, !(error instanceof JobFailed))
    } finally {
      await sendAll()
    }
  }

  /** Extends the lease of a job until it ends. Aborts it when it is lost. */
  const keepLease = async ({ attempt, job_id }: ClaimedJob, job: AbortController, ended: AbortSignal) => {
    const body = JSON.stringify({ job_id, attempt, lease_seconds: leaseSeconds })
    for (;;) {
      await pause((leaseSeconds * 1000) / 3, ended)
      if (ended.aborted) return
      // Other faults may pass: until then the fence protects the job. One without an answer holds no other back.
      void post("jobs/heartbeat", body, ended).catch((error: Error) => {
        if (isLost(error)) job.abort(new Error(`The job was lost: ${error.message}`))
      })
    }
  }

  /** Does one job. When its lease is lost, or the worker has stopped, what it does counts no more. */
  const runJob = async (claimed: ClaimedJob) => {
    const job = new AbortController()
    const ended = new AbortController()
    const { signal } = job
    jobs.add(job)
    void keepLease(claimed, job, ended.signal)
    const aborted = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))
    const work = handle(claimed, job).then((report) => patiently(report, signal))
    await Promise.race([work, aborted]).catch((error: unknown) => {
      if (error !== stopped) onError(toError(error), claimed.job_id)
    })
    // What comes later is nobody's.
    work.catch(() => {})
    ended.abort()
    jobs.delete(job)
    freed()
    if (jobs.size === 0 && stopping.signal.aborted) idle.abort()
  }

  const claim = async (failures: number): Promise<ReadonlyArray<ClaimedJob>> => {
    const limit = Math.min(concurrency - jobs.size, maxClaimed)
    const body = { workflows, lease_seconds: leaseSeconds, wait_seconds: waitSeconds, limit }
    try {
      const { jobs } = await post("jobs/claim", JSON.stringify(body), stopping.signal)
      return jobs as ReadonlyArray<ClaimedJob>
    } catch (error) {
      if (stopping.signal.aborted) return []
      onError(toError(error), undefined)
      if (!(error instanceof RequestFailed && error.isTransient)) throw error
      await pause(backoff(failures, error), stopping.signal)
      return stopping.signal.aborted ? [] : claim(failures + 1)
    }
  }

  const run = async () => {
    try {
      while (!stopping.signal.aborted) {
        if (jobs.size >= concurrency) {
          await new Promise<void>((resolve) => (freed = resolve))
          continue
        }
        const claimed = await claim(0)
        for (const job of claimed) void runJob(job)
        if (claimed.length === 0) await pause(emptyPause, stopping.signal)
      }
    } finally {
      for (const signal of signals) process.off(signal, stop)
      stopping.abort()
      if (jobs.size > 0) await pause(graceSeconds * 1000, idle.signal)
      for (const job of jobs) job.abort(stopped)
    }
  }
  const stop = () => {
    stopping.abort()
    freed()
    return done
  }
  const done = run()
  for (const signal of signals) process.once(signal, stop)
  return { stop, done }
}

/** Why a job is aborted whose worker stops. */
const stopped = new Error("The worker has stopped.")
