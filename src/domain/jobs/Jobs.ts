import { Context, DateTime, Deferred, Effect, Exit, FiberSet, Latch, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidRequest, type LimitReached, type Unavailable } from "../Errors.ts"
import { nextCursor, type Page } from "../Page.ts"
import { currentTenant, RequestOrg } from "../Principal.ts"
import { Wakeups } from "../Wakeups.ts"
import { makeNonce } from "../ServiceEvent.ts"
import { DefaultLimits, limitReached } from "../orgs/OrgLimits.ts"
import { makeDelayed, makeExpiry } from "./Leases.ts"
import type {
  ClaimedJob,
  ClaimJobs,
  CompleteJob,
  CompleteJobs,
  CreateJob,
  CreateJobs,
  FailJob,
  HeartbeatJob,
  JobLine,
  LogJob,
  StepJob,
} from "./Job.ts"
import { completed, endIdOf, failed, type JobReport, type ReportedChange } from "./JobEnd.ts"
import { type JobFilter, JobRepository, type NewJob } from "./JobRepository.ts"
import { type CancelJobs, makeJobSweeps } from "./JobSweeps.ts"
import { JobTemplates } from "./JobTemplates.ts"
import { makeWorkflows } from "./Workflows.ts"

const defaultLeaseSeconds = 60
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

/** The workflows of a claim; `undefined` for any. Fails when the request has both fields. */
const claimedWorkflows = ({ workflow, workflows }: typeof ClaimJobs.Type) => {
  if (workflow !== undefined && workflows !== undefined) {
    return Effect.fail(
      new InvalidRequest({ error: "workflow and workflows must not be sent together: send one of them." }),
    )
  }
  return Effect.succeed(workflow === undefined ? workflows && [...new Set(workflows)].toSorted() : [workflow])
}

/** Claims jobs, at once or after a wait. */
const makeClaim = Effect.gen(function* () {
  const repository = yield* JobRepository
  const wakeups = yield* Wakeups
  const limited = limitWaitingClaims((yield* DefaultLimits).waitingClaims)

  const claimNow = Effect.fnUntraced(function* (key: PollKey, limit: number) {
    const now = yield* DateTime.now
    const leaseUntil = DateTime.add(now, { seconds: key.leaseSeconds })
    return yield* repository.claim(key.orgId, { workflows: key.workflows, limit, now, leaseUntil })
  })
  const waiting = yield* makeJobPolls(
    (key, limit) => Effect.provideService(claimNow(key, limit), RequestOrg, key.orgId),
    (orgId, jobs) => Effect.flatMap(DateTime.now, (now) => repository.release(orgId, jobs, now)),
  )
  yield* wakeups.onJobs(waiting.wake)

  return Effect.fn("Jobs.claim")(function* (input: typeof ClaimJobs.Type) {
    const orgId = yield* currentTenant
    const { limit = 1, lease_seconds: leaseSeconds = defaultLeaseSeconds, wait_seconds: wait = 0 } = input
    const key = { orgId, workflows: yield* claimedWorkflows(input), leaseSeconds }
    if (wait === 0) return yield* claimNow(key, limit)
    return yield* limited(orgId, waiting.wait(key, limit, wait))
  })
})

/** Reports about jobs, with a nonce for an event, and signals the deliveries. */
const makeReport = Effect.gen(function* () {
  const repository = yield* JobRepository
  const random = yield* SecureRandom.SecureRandom
  const wakeups = yield* Wakeups

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
      const outcomes = yield* repository.reportAll(orgId, ends)
      yield* wake(
        orgId,
        outcomes.flatMap((outcome) => (Result.isSuccess(outcome) ? outcome.success : [])),
      )
      return outcomes
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

/** The jobs of the current tenant. Its workers claim and finish them; webhooks report the outcomes. */
export class Jobs extends Context.Service<Jobs>()("gatehouse/domain/Jobs", {
  make: Effect.gen(function* () {
    const repository = yield* JobRepository
    const templates = yield* JobTemplates
    const random = yield* SecureRandom.SecureRandom
    const wakeups = yield* Wakeups
    const report = yield* makeReport
    const sweeps = yield* makeJobSweeps
    const workflows = yield* makeWorkflows

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
      yield* wakeups.jobs(orgId)
      return made
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
      }),

      /** Keeps lines that the worker of a job has logged. */
      log: Effect.fn("Jobs.log")(function* ({ attempt, job_id, lines }: typeof LogJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const kept = { progress: undefined, note: undefined, lines: linesAt(lines, now) }
        yield* repository.extendLease(orgId, job_id, { leaseUntil: null, now, attempt, ...kept })
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

      ...sweeps,

      ...workflows,

      /**
       * Cancels a job that is not finished, or in the background all that a filter selects. They make no event; their
       * workers get a `Conflict`. Returns `null` for one job.
       */
      cancel: Effect.fn("Jobs.cancel")((input: typeof CancelJobs.Type) =>
        sweeps.cancel(input, (orgId, jobId) =>
          // It stores nothing.
          Effect.catchTag(report.one(orgId, jobId, { _tag: "Canceled" }), "LimitReached", Effect.die),
        ),
      ),

      get: Effect.fn("Jobs.get")(function* (jobId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, jobId)
      }),

      list: Effect.fn("Jobs.list")(function* (query: Page & JobFilter) {
        const orgId = yield* currentTenant
        const { status = query.error === undefined ? undefined : "failed" } = query
        if (query.error !== undefined && status !== "failed") {
          return yield* new InvalidRequest({
            error: "error selects failed jobs: send it without status, or with failed.",
          })
        }
        const found = yield* repository.list(orgId, { ...query, status }, query)
        return { jobs: found.items, next_cursor: nextCursor(found, (job) => job.job_id) ?? found.scannedTo }
      }),

      /** Queues all jobs with an expired lease again, or fails them after their last lease; orgs take turns. */
      expireLeases: makeExpiry(repository.expireLeases, ({ orgId, jobId }) =>
        Effect.catchTag(report.one(orgId, jobId, { _tag: "LeaseExpired" }), "LimitReached", Effect.die),
      ),

      /** Fails all jobs that nobody has claimed in time; orgs take turns. */
      expireQueued: makeExpiry(repository.findExpired, ({ orgId, jobId }) =>
        Effect.catchTag(report.one(orgId, jobId, { _tag: "Expired" }), "LimitReached", Effect.die),
      ),

      /** Opens all delayed jobs whose time to run has come to claims; orgs take turns. */
      queueDelayed: makeDelayed(repository.queueDelayed, wakeups.jobs),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

type Claimed = ReadonlyArray<ClaimedJob>

/** Claims with the same key share one poll. */
interface PollKey {
  readonly orgId: string
  /** Sorted, without duplicates; `undefined` for any workflow. */
  readonly workflows: ReadonlyArray<string> | undefined
  readonly leaseSeconds: number
}

/** A claim that waits for jobs. */
interface Waiter {
  /** The maximum of jobs. */
  readonly limit: number
  readonly answer: Deferred.Deferred<Claimed, Unavailable>
  /**
   * Whether the statement in flight claims for it. That statement is not interrupted, so the waiter waits for its
   * result.
   */
  isServed: boolean
  /** Whether its time to wait is over. */
  isOver: boolean
  jobs: Claimed
}

/** The claims of one key that wait, and what wakes their loop. */
interface Poll {
  readonly key: PollKey
  /** In the order of their arrival. */
  readonly waiters: Set<Waiter>
  /** Ends the sleep between two claims when it opens. */
  readonly wake: Latch.Latch
}

/** Jobs that one statement claims at most. */
const maxClaimedJobs = 100
/** How often a poll claims when nothing wakes it. It finds the jobs that other replicas queue. */
const pollInterval = "1 second"

/** The next waiters to claim for, first come first served, and the sum of their limits, up to `max`. */
export const nextToServe = <W extends { readonly limit: number }>(waiters: Iterable<W>, max = maxClaimedJobs) => {
  const served: Array<W> = []
  let limit = 0
  for (const waiter of waiters) {
    if (limit >= max) break
    served.push(waiter)
    limit += waiter.limit
  }
  return { served, limit: Math.min(limit, max) }
}

/**
 * Distributes jobs to waiters, first come first served, up to the limit of each. `left` are the jobs without a waiter.
 */
export const distribute = <W extends { readonly limit: number }, J>(waiters: Iterable<W>, jobs: ReadonlyArray<J>) => {
  const shares: Array<readonly [W, ReadonlyArray<J>]> = []
  let at = 0
  for (const waiter of waiters) {
    if (at >= jobs.length) break
    shares.push([waiter, jobs.slice(at, at + waiter.limit)])
    at += waiter.limit
  }
  return { shares, left: jobs.slice(at) }
}

/** The polls of this replica, by org and key. Bounded by the claims that wait. */
const makePolls = () => {
  const orgs = new Map<string, Map<string, Poll>>()
  const nameOf = ({ workflows, leaseSeconds }: PollKey) => JSON.stringify([leaseSeconds, workflows])

  return {
    find: (key: PollKey) => orgs.get(key.orgId)?.get(nameOf(key)),
    add: (key: PollKey): Poll => {
      const poll = { key, waiters: new Set<Waiter>(), wake: Latch.makeUnsafe(false) }
      const polls = orgs.get(key.orgId) ?? new Map<string, Poll>()
      orgs.set(key.orgId, polls.set(nameOf(key), poll))
      return poll
    },
    remove: ({ key }: Poll) => {
      const polls = orgs.get(key.orgId)!
      polls.delete(nameOf(key))
      if (polls.size === 0) orgs.delete(key.orgId)
    },
    /** Wakes the polls of an org. */
    wake: (orgId: string) => orgs.get(orgId)?.forEach((poll) => poll.wake.openUnsafe()),
  }
}

const answer = (poll: Poll, waiter: Waiter, exit: Exit.Exit<Claimed, Unavailable>) => {
  poll.waiters.delete(waiter)
  if (Exit.isSuccess(exit)) waiter.jobs = exit.value
  Deferred.doneUnsafe(waiter.answer, exit)
}

/** Removes a waiter without an answer. The loop of a poll without waiters ends. */
const leave = (poll: Poll, waiter: Waiter) => {
  poll.waiters.delete(waiter)
  if (poll.waiters.size === 0) poll.wake.openUnsafe()
}

/**
 * Claims that wait for a job. Claims of the same key share one poll, which claims for all of them in one statement:
 * when a waiter arrives, when the org gets a job, and every second. So a job wakes one waiter. Jobs whose waiter has
 * left go to the next waiter, or back to the queue.
 *
 * @param claim claims up to `limit` jobs
 * @param release returns claimed jobs to the queue
 */
const makeJobPolls = Effect.fnUntraced(function* (
  claim: (key: PollKey, limit: number) => Effect.Effect<Claimed, Unavailable>,
  release: (orgId: string, jobs: Claimed) => Effect.Effect<void, Unavailable>,
) {
  // Polls do not run in the fibers of requests, because a poll outlives the waiter that started it.
  const run = yield* FiberSet.makeRuntime()
  const polls = makePolls()

  const share = (key: PollKey, jobs: Claimed): Effect.Effect<void> =>
    Effect.suspend(() => {
      const poll = polls.find(key)
      const { shares, left } = distribute(poll?.waiters ?? [], jobs)
      for (const [waiter, own] of shares) answer(poll!, waiter, Exit.succeed(own))
      if (left.length === 0) return Effect.void
      return release(key.orgId, left).pipe(
        Effect.andThen(Effect.sync(() => polls.wake(key.orgId))),
        Effect.catchCause((cause) =>
          Effect.logWarning(
            "Claimed jobs without a waiter are not released; they are queued when their lease expires",
            cause,
          ),
        ),
      )
    })

  /** Claims for the next waiters. Returns whether there may be more jobs for the others. */
  const serve = Effect.fnUntraced(function* (poll: Poll) {
    const { served, limit } = nextToServe(poll.waiters)
    for (const waiter of served) waiter.isServed = true
    const exit = yield* Effect.exit(claim(poll.key, limit))
    for (const waiter of served) waiter.isServed = false
    if (Exit.isFailure(exit)) {
      for (const waiter of [...poll.waiters]) answer(poll, waiter, exit)
      return false
    }
    yield* share(poll.key, exit.value)
    for (const waiter of served) if (waiter.isOver && poll.waiters.has(waiter)) answer(poll, waiter, Exit.succeed([]))
    return exit.value.length === limit
  }, Effect.uninterruptible)

  const loop = Effect.fnUntraced(function* (poll: Poll) {
    while (poll.waiters.size > 0) {
      poll.wake.closeUnsafe()
      const hasMore = yield* serve(poll)
      if (!hasMore && poll.waiters.size > 0) yield* Effect.raceFirst(poll.wake.await, Effect.sleep(pollInterval))
    }
    polls.remove(poll)
  })

  const join = (key: PollKey, waiter: Waiter) => {
    const joined = polls.find(key)
    const poll = joined ?? polls.add(key)
    poll.waiters.add(waiter)
    poll.wake.openUnsafe()
    if (joined === undefined) run(loop(poll))
    return poll
  }

  /** Waits up to `seconds` for up to `limit` jobs. Returns an empty list if none arrives. */
  const wait = (key: PollKey, limit: number, seconds: number) =>
    Effect.uninterruptibleMask((restore) => {
      const waiter: Waiter = { limit, answer: Deferred.makeUnsafe(), isServed: false, isOver: false, jobs: [] }
      const poll = join(key, waiter)
      const end = Effect.suspend(() => {
        waiter.isOver = true
        if (waiter.isServed || !poll.waiters.has(waiter)) return Deferred.await(waiter.answer)
        leave(poll, waiter)
        return Effect.succeed<Claimed>([])
      })
      const answered = Deferred.await(waiter.answer)
      return restore(Effect.raceFirst(answered, Effect.andThen(Effect.sleep(`${seconds} seconds`), end))).pipe(
        Effect.onInterrupt(() =>
          Effect.sync(() => {
            leave(poll, waiter)
            if (waiter.jobs.length > 0) run(share(key, waiter.jobs))
          }),
        ),
      )
    })

  return { wait, wake: polls.wake }
})

/** Limits the claims of each org that wait in this replica. */
export const limitWaitingClaims = (limit: number) => {
  // Bounded by the waiting claims: an org without one has no entry.
  const waiting = new Map<string, number>()
  const change = (orgId: string, by: 1 | -1) => {
    const count = (waiting.get(orgId) ?? 0) + by
    if (count === 0) waiting.delete(orgId)
    else waiting.set(orgId, count)
  }

  /** Runs a claim that waits. Fails with `LimitReached` at once when its org has reached the limit. */
  return <A, E, R>(orgId: string, claim: Effect.Effect<A, E, R>) =>
    Effect.suspend((): Effect.Effect<A, E | LimitReached, R> => {
      if ((waiting.get(orgId) ?? 0) >= limit) return limitReached("waitingClaims", limit)
      change(orgId, 1)
      return Effect.ensuring(
        claim,
        Effect.sync(() => change(orgId, -1)),
      )
    })
}
