import {
  Cause,
  type Context,
  Data,
  DateTime,
  Deferred,
  Duration,
  Effect,
  Exit,
  FiberSet,
  Latch,
  Schedule,
} from "effect"
import type { HttpClient } from "effect/http"
import type { ClaimedJob } from "../domain/jobs/Job.ts"
import * as Gatehouse from "./client.ts"

/** What a worker tells with a heartbeat. */
export interface Heartbeat {
  /** How much of the work is done, 0 to 1. */
  readonly progress?: number
  /** What the worker does now, in words. */
  readonly note?: string
}

/** A claimed job, for its handler. */
export interface WorkerJob {
  readonly jobId: string
  readonly workflow: string
  readonly input: unknown
  readonly deploymentId: string | null
  /** How often the job was claimed, with this claim. */
  readonly attempt: number
  /** Aborted when the job is no longer this worker's: it is canceled, its lease is lost, or the worker stops. */
  readonly signal: AbortSignal
  /** Reports progress. The worker extends the lease by itself. */
  readonly heartbeat: (report: Heartbeat) => Promise<void>
  /** Reports how much of the work is done, 0 to 1, and what the worker does now. */
  readonly progress: (progress: number, note?: string) => Promise<void>
  /** Keeps a line with the job. Lines are sent about every second, and before the outcome. */
  readonly log: (text: string, level?: LogLevel) => void
  /**
   * Does a step once: its result, which must be JSON, is kept with the job, and another attempt gets that in place of
   * doing the step again. A step that fails is not kept.
   */
  readonly step: <A>(name: string, work: () => Promise<A>) => Promise<A>
}

export type LogLevel = "debug" | "info" | "warn" | "error"

/**
 * Does the work of a job. The result becomes the result of the job. An error fails the attempt, and the job is retried.
 */
export type Handler = (job: WorkerJob) => Promise<unknown>

/** The job cannot succeed: it fails without a retry. Throw it in a handler. */
export class JobFailed extends Error {
  override readonly name = "JobFailed"
}

export interface LoopOptions {
  readonly baseUrl: string | URL
  readonly key: string
  readonly handlers: Readonly<Record<string, Handler>>
  readonly concurrency: number
  readonly leaseSeconds: number
  readonly waitSeconds: number
  readonly graceSeconds: number
  readonly onError: (error: Error, jobId: string | undefined) => void
}

/** The job belongs to nobody or to another worker. */
class Lost extends Data.TaggedError("Lost")<{ readonly reason: string }> {}

/** The handler of a job threw. */
class HandlerFailed extends Data.TaggedError("HandlerFailed")<{ readonly cause: Error }> {}

/** The longest error and stack of a report, in characters. */
const maxErrorLength = 10_000
/** Longest wait between two requests that fail. */
const maxRetryWait = Duration.seconds(10)
/** Requests of one report until it is given up. */
const maxReports = 12

/** The lines of one request, those that wait to be sent, and the characters of one. */
const maxSentLines = 100
const maxWaitingLines = 1_000
const maxLineLength = 2_000
/** How long a line waits for others. */
const lineInterval = Duration.seconds(1)

/** The pause after a claim without a job. */
const emptyPause = "200 millis"

/** Waits that double up to `maxRetryWait`. */
const backoff = Schedule.jittered(
  Schedule.modifyDelay(Schedule.exponential("200 millis"), ({ duration }) =>
    Effect.succeed(Duration.min(duration, maxRetryWait)),
  ),
)

/** Text that the service accepts. */
const cleanText = (text: string, length = maxErrorLength) => text.slice(0, length).replaceAll("\0", "").toWellFormed()

const transientTags = new Set(["HttpClientError", "InternalError", "LimitReached", "SchemaError", "Unavailable"])
const isTransient = ({ _tag }: { readonly _tag: string }) => transientTags.has(_tag)

/** An error with the sentence of the service, if it is the service's. */
const toError = (error: unknown) => {
  const sentence = (error as { readonly error?: unknown } | null | undefined)?.error
  if (typeof sentence === "string") return new Error(sentence, { cause: error })
  return error instanceof Error ? error : new Error(String(error))
}

/** Returns a result that is JSON; throws `JobFailed` for any other. */
const asJson = (result: unknown) => {
  try {
    JSON.stringify(result)
  } catch (error) {
    throw new JobFailed(`The result is not JSON: ${toError(error).message}`, { cause: error })
  }
  return result
}

type Client = Gatehouse.Client
type Claimed = typeof ClaimedJob.Type

/** Extends the lease of a job until it is lost. */
const keepLease = (client: Client, { attempt, job_id }: Claimed, { leaseSeconds }: LoopOptions) =>
  client.jobs.heartbeat({ payload: { job_id, attempt, lease_seconds: leaseSeconds } }).pipe(
    Effect.catchTags({
      Conflict: ({ error }) => Effect.fail(new Lost({ reason: error })),
      NotFound: ({ error }) => Effect.fail(new Lost({ reason: error })),
    }),
    // Other faults may pass: until then the fence protects the job.
    Effect.catchIf(
      (error) => error._tag !== "Lost",
      () => Effect.void,
    ),
    Effect.delay(Duration.seconds(leaseSeconds / 3)),
    Effect.forever,
  )

/** The lines that a handler has logged and that are not sent. */
const makeLines = (client: Client, { attempt, job_id }: Claimed, context: Context.Context<never>) => {
  const waiting: Array<{ readonly at: DateTime.Utc; readonly level: LogLevel; readonly text: string }> = []
  const send = Effect.suspend(() =>
    client.jobs.log({ payload: { job_id, attempt, lines: waiting.splice(0, maxSentLines) } }),
  ).pipe(
    // A lost line must not fail the job; whether the job is lost is found by its heartbeat.
    Effect.ignore,
    Effect.repeat({ while: () => waiting.length > 0 }),
    Effect.when(Effect.sync(() => waiting.length > 0)),
  )
  return {
    log: (text: string, level: LogLevel = "info") => {
      const at = Effect.runSyncWith(context)(DateTime.now)
      waiting.push({ at, level, text: cleanText(text, maxLineLength) })
      if (waiting.length > maxWaitingLines) waiting.shift()
    },
    send,
    keepSending: Effect.forever(Effect.delay(send, lineInterval)),
  }
}

const patiently = <A, E extends { readonly _tag: string }>(request: Effect.Effect<A, E>) =>
  Effect.retry(request, { schedule: backoff, times: maxReports, while: isTransient })

/** Does a step of a job unless an attempt has done it. */
const makeStep = (client: Client, { attempt, job_id }: Claimed, context: Context.Context<never>) => {
  const run = Effect.runPromiseWith(context)
  let finished: Promise<ReadonlyMap<string, unknown>> | undefined
  const read = async () => {
    const { steps } = await run(patiently(client.jobs.get({ payload: { job_id } })))
    return new Map(steps.map(({ name, result }) => [name, result]))
  }
  return async <A>(name: string, work: () => Promise<A>): Promise<A> => {
    // A first attempt finds none.
    finished ??= attempt === 1 ? Promise.resolve(new Map()) : read()
    const known = await finished
    if (known.has(name)) return known.get(name) as A
    const result = await work()
    const kept = asJson(result) === undefined ? {} : { result }
    await run(patiently(client.jobs.step({ payload: { job_id, attempt, name, ...kept } })))
    return result
  }
}

/** Runs the handler of a job; returns the request that reports its outcome. */
const handle = (client: Client, job: Claimed, options: LoopOptions, context: Context.Context<never>) => {
  const { handlers, leaseSeconds } = options
  const { attempt, deployment_id, input, job_id, workflow } = job
  const heartbeat = (report: Heartbeat) =>
    Effect.runPromiseWith(context)(
      Effect.asVoid(client.jobs.heartbeat({ payload: { job_id, attempt, lease_seconds: leaseSeconds, ...report } })),
    )
  const { keepSending, log, send } = makeLines(client, job, context)
  const work = Effect.tryPromise({
    try: async (signal) => {
      const shown = { jobId: job_id, workflow, input, deploymentId: deployment_id, attempt, signal, heartbeat, log }
      const progress = (progress: number, note?: string) =>
        heartbeat({ progress, ...(note === undefined ? {} : { note }) })
      return asJson(await handlers[workflow]!({ ...shown, progress, step: makeStep(client, job, context) }))
    },
    catch: (cause) => new HandlerFailed({ cause: toError(cause) }),
  }).pipe(Effect.raceFirst(keepSending), Effect.ensuring(send))
  const fail = (error: Error, retry: boolean) =>
    client.jobs.fail({
      payload: {
        job_id,
        attempt,
        error: cleanText(error.message),
        mapped_stack: error.stack === undefined ? null : cleanText(error.stack),
        retry,
      },
    })
  const complete = (result: unknown) =>
    client.jobs.complete({ payload: { job_id, attempt, ...(result === undefined ? {} : { result }) } })
  return Effect.match(work, {
    onSuccess: (result) =>
      complete(result).pipe(
        // A result that the service does not accept is a failure of the job.
        Effect.catchTags({
          InvalidRequest: ({ error }) => fail(new Error(`The result is not accepted: ${error}`), false),
          PayloadTooLarge: ({ error }) => fail(new Error(`The result is not accepted: ${error}`), false),
          LimitReached: ({ error }) => fail(new Error(`The result is not stored: ${error}`), true),
        }),
      ),
    onFailure: ({ cause }) => fail(cause, !(cause instanceof JobFailed)),
  })
}

/** Does one job: keeps its lease, runs its handler and reports its outcome with the fence. */
const runJob = Effect.fnUntraced(function* (client: Client, job: Claimed, options: LoopOptions) {
  const context = yield* Effect.context<never>()
  const report = yield* Effect.raceFirst(handle(client, job, options, context), keepLease(client, job, options))
  yield* report.pipe(
    Effect.retry({ schedule: backoff, times: maxReports, while: isTransient }),
    Effect.raceFirst(keepLease(client, job, options)),
  )
})

/** Logs what went wrong with a job. The lease expires, and another claim gets the job. */
const reportFault =
  ({ onError }: LoopOptions, jobId: string) =>
  (cause: Cause.Cause<unknown>) =>
    Effect.sync(() => {
      if (Cause.hasInterruptsOnly(cause)) return
      const fault = Cause.squash(cause)
      onError(fault instanceof Lost ? new Error(`The job was lost: ${fault.reason}`) : toError(fault), jobId)
    })

/**
 * Claims jobs and runs their handlers until `stop` completes. Then it claims no more, waits for the jobs in flight, and
 * after the grace aborts them: their leases expire. Fails when the service refuses the claims.
 */
export const loop = Effect.fnUntraced(function* (options: LoopOptions, stop: Deferred.Deferred<void>) {
  const { baseUrl, concurrency, graceSeconds, handlers, key, leaseSeconds, onError, waitSeconds } = options
  const client = yield* Gatehouse.make({ baseUrl, credential: key })
  const jobs = yield* FiberSet.make<void>()
  const changed = Latch.makeUnsafe(false)
  let free = concurrency
  const payload = { workflows: Object.keys(handlers), lease_seconds: leaseSeconds, wait_seconds: waitSeconds }
  const claim = Effect.suspend(() => client.jobs.claim({ payload: { ...payload, limit: Math.min(free, 100) } })).pipe(
    Effect.map((response) => response.jobs),
    Effect.tapError((error) => Effect.sync(() => onError(toError(error), undefined))),
    Effect.retry({ schedule: backoff, while: isTransient }),
  )
  const begin = (job: Claimed) => {
    free--
    const done = Effect.sync(() => {
      free++
      changed.openUnsafe()
    })
    return FiberSet.run(
      jobs,
      runJob(client, job, options).pipe(Effect.catchCause(reportFault(options, job.job_id)), Effect.ensuring(done)),
    )
  }
  const claims = Effect.gen(function* () {
    while (true) {
      changed.closeUnsafe()
      if (free === 0) yield* changed.await
      // Not interrupted between the response and the start of the jobs.
      yield* Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const claimed = yield* restore(claim)
          yield* Effect.forEach(claimed, begin, { discard: true })
          if (claimed.length === 0) yield* restore(Effect.sleep(emptyPause))
        }),
      )
    }
  })
  const exit = yield* Effect.exit(Effect.raceFirst(claims, Deferred.await(stop)))
  yield* Effect.timeoutOption(FiberSet.awaitEmpty(jobs), Duration.seconds(graceSeconds))
  return yield* Effect.mapError(Exit.asVoid(exit), toError)
}, Effect.scoped) satisfies (...args: never) => Effect.Effect<void, unknown, HttpClient.HttpClient>
