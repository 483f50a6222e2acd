import { Context, DateTime, Effect, Layer, Result, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { AuditLog } from "../audit/AuditLog.ts"
import { InvalidRequest } from "../Errors.ts"
import { nextCursor, type Page } from "../Page.ts"
import { currentTenant } from "../Principal.ts"
import { Wakeups } from "../Wakeups.ts"
import { makeNonce } from "../ServiceEvent.ts"
import { makeClaim } from "./WaitingClaims.ts"
import { makeExpiry, makeQueuing } from "./dueJobs.ts"
import {
  type CompleteJob,
  type CompleteJobs,
  type CreateJob,
  type CreateJobs,
  defaultLeaseSeconds,
  type FailJob,
  type HeartbeatJob,
  type JobLine,
  type LogJob,
  type StepJob,
} from "./Job.ts"
import { completed, endIdOf, failed, type JobReport, type ReportedChange } from "./JobEnd.ts"
import { JobRepository, type NewJob } from "./JobRepository.ts"
import { makeTell } from "./tellJobs.ts"
import { type CancelJobs, JobSweepFilter, type JobSweepOrder, type RetryJobs } from "./JobSweep.ts"
import { JobTemplates } from "./JobTemplates.ts"
import { type SetWorkflow, workflowNotFound } from "./WorkflowSettings.ts"

/** Delayed jobs that one statement opens to claims. */
const maxDelayedBatch = 1_000

/** How far ahead `run_at` may be. */
const maxDelayDays = 366

/** The time from which claims may take a new job; `null` for now. Fails when it is too far ahead. */
const timeToRun = (runAt: DateTime.Utc | undefined, now: DateTime.Utc) => {
  if (runAt === undefined || DateTime.isLessThanOrEqualTo(runAt, now)) return Effect.succeed(null)
  return DateTime.isGreaterThan(runAt, DateTime.add(now, { days: maxDelayDays }))
    ? Effect.fail(new InvalidRequest({ error: "run_at must be at most a year ahead." }))
    : Effect.succeed(runAt)
}

/** What prevents a new job, and when it may run. Fails for fields that do not go together. */
const uniqueAndTime = (input: typeof CreateJob.Type, now: DateTime.Utc) => {
  const { debounce_seconds: debounce, idempotency_key, run_at, unique } = input
  const refuse = (error: string) => Effect.fail(new InvalidRequest({ error }))
  if (unique !== undefined && idempotency_key !== undefined) {
    return refuse("unique and idempotency_key must not be sent together: send one of them.")
  }
  if (debounce !== undefined) {
    if (unique === undefined) return refuse("debounce_seconds needs unique with a key.")
    if (unique.within_seconds !== undefined || unique.states !== undefined) {
      return refuse("With debounce_seconds, unique must have only a key.")
    }
    if (run_at !== undefined) return refuse("debounce_seconds and run_at must not be sent together: send one of them.")
  }
  const { within_seconds: within, states = debounce === undefined ? ["queued", "running"] : ["queued"] } = unique ?? {}
  const since = within === undefined ? null : DateTime.subtract(now, { seconds: within })
  return Effect.map(
    debounce === undefined ? timeToRun(run_at, now) : Effect.succeed(DateTime.add(now, { seconds: debounce })),
    (runAt) => ({
      runAt,
      unique: unique === undefined ? null : { key: unique.key, states, since, debounces: debounce !== undefined },
    }),
  )
}

/** Reports about jobs, with a nonce for an event, and signals the deliveries. */
const makeReport = Effect.gen(function* () {
  const repository = yield* JobRepository
  const random = yield* SecureRandom.SecureRandom
  const wakeups = yield* Wakeups
  const tell = yield* makeTell

  const endOf = Effect.fnUntraced(function* (orgId: string, jobId: string) {
    const [nonce, endId] = [yield* makeNonce(random), endIdOf(jobId, yield* random.ulid)]
    return { orgId, jobId, endId, nonce, now: yield* DateTime.now }
  })
  const wake = Effect.fnUntraced(function* (orgId: string, changes: ReadonlyArray<ReportedChange>) {
    yield* wakeups.deliveries
    if (repository.hasLimits(orgId)) yield* wakeups.jobs(orgId)
    if (changes.some(({ hasSweep }) => hasSweep)) yield* wakeups.sweeps
  })

  return {
    one: Effect.fnUntraced(function* (orgId: string, jobId: string, report: JobReport) {
      const change = yield* repository.report(yield* endOf(orgId, jobId), report)
      tell(orgId, [jobId], change.status)
      yield* wake(orgId, [change])
      return change.status
    }),
    /** Returns what became of each report. */
    all: Effect.fnUntraced(function* (
      orgId: string,
      reports: ReadonlyArray<{ readonly jobId: string; readonly report: JobReport }>,
    ) {
      const ends = yield* Effect.forEach(reports, ({ jobId, report }) =>
        Effect.map(endOf(orgId, jobId), (end) => ({ end, report })),
      )
      const results = yield* repository.reportAll(orgId, ends)
      for (const [n, result] of results.entries()) {
        if (Result.isSuccess(result)) tell(orgId, [reports[n]!.jobId], result.success.status)
      }
      yield* wake(
        orgId,
        results.flatMap((result) => (Result.isSuccess(result) ? result.success : [])),
      )
      return results
    }),
  }
})

/** The lines of a request, each with its time and level. */
const linesAt = (lines: (typeof HeartbeatJob.Type)["lines"], now: DateTime.Utc): ReadonlyArray<JobLine> | undefined =>
  lines?.map(({ at = now, level = "info", text }) => ({ at, level, text }))

/** The report of a worker that has completed its job. */
const completion = ({ attempt, result = null }: typeof CompleteJob.Type): JobReport => ({
  _tag: "Ended",
  outcome: completed(result),
  attempt,
  retry: false,
})

const encodeFilter = Schema.encodeSync(JobSweepFilter)

/** Fails unless a request has either a job or a filter. */
const checkTarget = (input: typeof RetryJobs.Type) => {
  const { dry_run, filter, job_id } = input
  const wrong = (error: string) => Effect.fail(new InvalidRequest({ error }))
  if (job_id === undefined && filter === undefined) return wrong("job_id or filter is missing: send one of them.")
  if (job_id !== undefined && filter !== undefined) {
    return wrong("job_id and filter must not be sent together: send one of them.")
  }
  if (filter !== undefined && input.input !== undefined) return wrong("input must be sent with job_id.")
  return job_id !== undefined && dry_run !== undefined ? wrong("dry_run must be sent with filter.") : Effect.void
}

const noSettings = { concurrency: null, concurrency_per_key: null, rate: null, retry: null, expires_in_seconds: null }

/** The jobs of the current tenant. Its workers claim and finish them; webhooks report the outcomes. */
export class Jobs extends Context.Service<Jobs>()("gatehouse/domain/Jobs", {
  make: Effect.gen(function* () {
    const repository = yield* JobRepository
    const templates = yield* JobTemplates
    const random = yield* SecureRandom.SecureRandom
    const wakeups = yield* Wakeups
    const report = yield* makeReport
    const tell = yield* makeTell
    const audit = yield* AuditLog

    const insert = Effect.fnUntraced(function* (
      inputs: ReadonlyArray<typeof CreateJob.Type>,
      fieldOf: (field: string, n: number) => string,
    ) {
      const orgId = yield* currentTenant
      const now = yield* DateTime.now
      const jobs: ReadonlyArray<NewJob> = yield* Effect.forEach(inputs, (input, n) =>
        Effect.gen(function* () {
          const jobId = yield* random.ulid
          const template = yield* templates.prepare(input, jobId)
          const keys = { idempotencyKey: input.idempotency_key ?? null, ...(yield* uniqueAndTime(input, now)) }
          return { ...template, ...keys, jobId, orgId, now }
        }).pipe(Effect.mapError(({ error }) => new InvalidRequest({ error: fieldOf(error, n) }))),
      )
      const made = yield* repository.insert(jobs)
      tell(
        orgId,
        made.map(({ jobId }) => jobId),
        "queued",
      )
      yield* wakeups.jobs(orgId)
      return made
    })

    const endAll = (ended: JobReport) => (orgId: string, jobIds: ReadonlyArray<string>) =>
      report.all(
        orgId,
        jobIds.map((jobId) => ({ jobId, report: ended })),
      )

    /** Counts the jobs of a filter, and begins to retry or cancel them in the background. */
    const startSweep = Effect.fnUntraced(function* (
      orgId: string,
      { filter: asked, kind }: JobSweepOrder,
      dryRun: boolean | undefined,
    ) {
      const now = yield* DateTime.now
      // Without an end, a sweep would follow the jobs that are created while it runs.
      const order = { kind, filter: { ...asked, until: asked.until ?? now } }
      const counted = yield* repository.countSwept(orgId, order)
      if (dryRun === true || (counted.count === 0 && counted.isAll)) return { ...counted, sweepId: null }
      const target = yield* random.ulid
      const details = { kind, filter: encodeFilter(order.filter), count: counted.count }
      const entry = yield* audit.entry({ action: "job_sweep.start", target, details })
      yield* repository.startSweep(orgId, { ...order, count: counted.count }, entry)
      yield* wakeups.sweeps
      return { ...counted, sweepId: target }
    })

    return {
      create: Effect.fn("Jobs.create")(function* (input: typeof CreateJob.Type) {
        return (yield* insert([input], (error) => error))[0]!
      }),

      /** Creates jobs, all or none of them. Returns the id of each. An error names the place of its job. */
      createBatch: Effect.fn("Jobs.createBatch")(function* ({ jobs }: typeof CreateJobs.Type) {
        for (const [n, job] of jobs.entries()) {
          const field = (["unique", "debounce_seconds"] as const).find((name) => job[name] !== undefined)
          if (field === undefined) continue
          return yield* new InvalidRequest({ error: `jobs.${n}.${field} is not for a batch: create this job alone.` })
        }
        const made = yield* insert(jobs, (error, n) => `jobs.${n}.${error}`)
        return made.map(({ jobId }) => jobId)
      }),

      /**
       * Claims queued jobs, the highest priority first, then the oldest. With `wait_seconds`, waits that long for the
       * first one. Fails with `LimitReached` when too many claims of the org wait in this replica.
       */
      claim: yield* makeClaim,

      heartbeat: Effect.fn("Jobs.heartbeat")(function* (input: typeof HeartbeatJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const leaseUntil = DateTime.add(now, { seconds: input.lease_seconds ?? defaultLeaseSeconds })
        const { attempt, note, progress } = input
        const lines = linesAt(input.lines, now)
        yield* repository.extendLease(orgId, input.job_id, { leaseUntil, now, attempt, progress, note, lines })
        // Lines are shown as they come.
        if (lines !== undefined) tell(orgId, [input.job_id], "running")
      }),

      /** Keeps lines that the worker of a job has logged. */
      log: Effect.fn("Jobs.log")(function* ({ attempt, job_id, lines }: typeof LogJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const kept = { progress: undefined, note: undefined, lines: linesAt(lines, now) }
        yield* repository.extendLease(orgId, job_id, { leaseUntil: null, now, attempt, ...kept })
        tell(orgId, [job_id], "running")
      }),

      /** The newest lines of a job, oldest first. */
      lines: Effect.fn("Jobs.lines")(function* (jobId: string) {
        return yield* repository.lines(yield* currentTenant, jobId)
      }),

      /** Keeps the result of a finished step; the first result of a step stays. */
      step: Effect.fn("Jobs.step")(function* (input: typeof StepJob.Type) {
        const { attempt, job_id, name, result = null } = input
        const now = yield* DateTime.now
        yield* repository.finishStep(yield* currentTenant, job_id, { attempt, name, result, now })
      }),

      /** Completes a job. Returns its new status; `null` when it was completed before and nothing changes. */
      complete: Effect.fn("Jobs.complete")(function* (input: typeof CompleteJob.Type) {
        const orgId = yield* currentTenant
        return yield* report.one(orgId, input.job_id, completion(input))
      }),

      /** Completes jobs, each as `complete` does by itself. Returns what became of each. */
      completeBatch: Effect.fn("Jobs.completeBatch")(function* ({ jobs }: typeof CompleteJobs.Type) {
        const reports = jobs.map((job) => ({ jobId: job.job_id, report: completion(job) }))
        return yield* report.all(yield* currentTenant, reports)
      }),

      /**
       * Fails a job, or queues it again. Returns its new status; `null` when nothing changes, because it was done
       * before.
       */
      fail: Effect.fn("Jobs.fail")(function* (input: typeof FailJob.Type) {
        const orgId = yield* currentTenant
        const { attempt, error, job_id, mapped_stack = null, retry = false } = input
        return yield* report.one(orgId, job_id, { _tag: "Ended", outcome: failed(error, mapped_stack), attempt, retry })
      }),

      /** Queues a failed job again, or in the background all that a filter selects. Returns `null` for one job. */
      retry: Effect.fn("Jobs.retry")(function* (input: typeof RetryJobs.Type) {
        const orgId = yield* currentTenant
        yield* checkTarget(input)
        const { dry_run, filter, job_id } = input
        if (filter !== undefined) return yield* startSweep(orgId, { kind: "retry", filter }, dry_run)
        const details = { inputChanged: input.input !== undefined }
        const entry = yield* audit.entry({ action: "job.retry", target: job_id!, details })
        yield* repository.retry(orgId, job_id!, input.input, yield* DateTime.now, entry)
        tell(orgId, [job_id!], "queued")
        yield* wakeups.jobs(orgId)
        return null
      }),

      /**
       * Cancels a job that is not finished, or in the background all that a filter selects. They make no event; their
       * workers get a `Conflict`. Returns `null` for one job.
       */
      cancel: Effect.fn("Jobs.cancel")(function* (input: typeof CancelJobs.Type) {
        const orgId = yield* currentTenant
        yield* checkTarget(input)
        const { dry_run, filter, job_id } = input
        if (filter !== undefined) return yield* startSweep(orgId, { kind: "cancel", filter }, dry_run)
        // It stores nothing.
        yield* Effect.catchTag(report.one(orgId, job_id!, { _tag: "Canceled" }), "LimitReached", Effect.die)
        return null
      }),

      /** The unfinished retries and cancellations by a filter, newest first. */
      sweeps: Effect.flatMap(currentTenant, repository.sweeps),

      endSweep: Effect.fn("Jobs.endSweep")(function* (target: string) {
        const orgId = yield* currentTenant
        yield* repository.endSweep(orgId, yield* audit.entry({ action: "job_sweep.cancel", target, details: {} }))
      }),

      causes: Effect.fn("Jobs.causes")(function* (filter: Pick<JobSweepFilter, "workflow" | "since" | "until">) {
        return yield* repository.causes(yield* currentTenant, filter)
      }),

      /** Replaces the settings of a workflow. All but the expiry hold for queued jobs, too. */
      setWorkflow: Effect.fn("Jobs.setWorkflow")(function* (input: typeof SetWorkflow.Type) {
        const orgId = yield* currentTenant
        const { workflow: target, ...details } = input
        const now = yield* DateTime.now
        const wanted = { ...noSettings, ...input, created_at: now, updated_at: now }
        const entry = yield* audit.entry({ action: "workflow.set", target, details })
        yield* repository.setWorkflow(orgId, wanted, entry)
        yield* wakeups.jobs(orgId)
      }),

      workflow: Effect.fn("Jobs.workflow")(function* (workflow: string) {
        const [found] = yield* repository.workflows(yield* currentTenant, workflow)
        return found ?? (yield* workflowNotFound())
      }),

      /** The workflows that have settings, by their names. */
      workflows: Effect.flatMap(currentTenant, (orgId) => repository.workflows(orgId)),

      deleteWorkflow: Effect.fn("Jobs.deleteWorkflow")(function* (target: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "workflow.delete", target, details: {} })
        yield* repository.deleteWorkflow(orgId, target, entry)
        yield* wakeups.jobs(orgId)
      }),

      get: Effect.fn("Jobs.get")(function* (jobId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, jobId)
      }),

      /** What waits and runs, and what came in the last five minutes. */
      queue: Effect.gen(function* () {
        const orgId = yield* currentTenant
        return yield* repository.queue(orgId, DateTime.subtract(yield* DateTime.now, { minutes: 5 }))
      }).pipe(Effect.withSpan("Jobs.queue")),

      list: Effect.fn("Jobs.list")(function* (query: Page & JobSweepFilter) {
        const orgId = yield* currentTenant
        const { error, status = "failed" } = query
        if (error !== undefined && status !== "failed") {
          return yield* new InvalidRequest({
            error: "error selects failed jobs: send it without status, or with failed.",
          })
        }
        const found = yield* repository.list(orgId, error === undefined ? query : { ...query, status }, query)
        return { jobs: found.items, next_cursor: nextCursor(found, (job) => job.job_id) ?? found.scannedTo }
      }),

      /** Queues all jobs with an expired lease again, or fails them after their last lease; orgs take turns. */
      expireLeases: makeExpiry(repository.expireLeases, endAll({ _tag: "LeaseExpired" })),

      /** Fails all jobs that nobody has claimed in time; orgs take turns. */
      expireQueued: makeExpiry(repository.findExpired, endAll({ _tag: "Expired" })),

      /**
       * Opens all delayed jobs whose time to run has come to claims; orgs take turns. Until then they are not in the
       * index that claims read, so any number of them costs a claim nothing.
       */
      queueDelayed: makeQueuing(maxDelayedBatch, repository.queueDelayed, wakeups.jobs),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
