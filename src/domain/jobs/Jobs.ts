import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import { type Conflict, InvalidRequest, type LimitReached, type NotFound } from "../Errors.ts"
import type { Unauthorized, Unavailable } from "../Errors.ts"
import type { ClaimedJob, ClaimJobs, CompleteJob, CreateJob, FailJob, HeartbeatJob, Job, JobStatus } from "./Job.ts"
import { makeDelayed } from "./DelayedJobs.ts"
import { completed, failed, type JobReport } from "./JobEnd.ts"
import { type JobFilter, JobRepository } from "./JobRepository.ts"
import { JobTemplates } from "./JobTemplates.ts"
import { makeExpiry } from "./Leases.ts"
import { DefaultLimits } from "../orgs/OrgLimits.ts"
import { RequestOrg } from "../orgs/RequestOrg.ts"
import { nextCursor, type Page } from "../Page.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import { limitWaitingClaims } from "./waitingClaimLimit.ts"
import { makeJobPolls, type PollKey } from "./jobPolls.ts"
import { Wakeups } from "../webhooks/Wakeups.ts"

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

  return Effect.fnUntraced(function* (orgId: string, jobId: string, report: JobReport) {
    const nonce = Hex.encode(yield* random.randomBytes(16))
    const { hasSweep, status } = yield* repository.report({ orgId, jobId, nonce, now: yield* DateTime.now }, report)
    yield* wakeups.deliveries
    if (hasSweep) yield* wakeups.sweeps
    return status
  })
})

/** The jobs of the current tenant. Its workers claim and finish them; webhooks report the outcomes. */
export class Jobs extends Context.Service<
  Jobs,
  {
    readonly create: (
      input: typeof CreateJob.Type,
    ) => Effect.Effect<string, InvalidRequest | LimitReached | Unauthorized | Unavailable, CurrentPrincipal>
    /**
     * Claims queued jobs, the highest priority first, then the oldest. With `wait_seconds`, waits that long for the first one. Fails with `LimitReached` when too many
     * claims of the org wait in this replica.
     */
    readonly claim: (
      input: typeof ClaimJobs.Type,
    ) => Effect.Effect<
      ReadonlyArray<ClaimedJob>,
      InvalidRequest | LimitReached | Unauthorized | Unavailable,
      CurrentPrincipal
    >
    readonly heartbeat: (
      input: typeof HeartbeatJob.Type,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    /** Completes a job. Returns its new status; `null` when it was completed before and nothing changes. */
    readonly complete: (
      input: typeof CompleteJob.Type,
    ) => Effect.Effect<JobStatus | null, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    /** Fails a job, or queues it again. Returns its new status; `null` when nothing changes, because it was done before. */
    readonly fail: (
      input: typeof FailJob.Type,
    ) => Effect.Effect<JobStatus | null, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    /** Cancels a job that is not finished. It makes no event; its worker gets a `Conflict`. */
    readonly cancel: (
      jobId: string,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    readonly get: (jobId: string) => Effect.Effect<Job, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    readonly list: (
      query: Page & JobFilter,
    ) => Effect.Effect<
      { readonly jobs: ReadonlyArray<Job>; readonly next_cursor: string | null },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    /** Queues all jobs with an expired lease again, or fails them after their last lease; orgs take turns. */
    readonly expireLeases: Effect.Effect<void, Unavailable>
    /** Opens all delayed jobs whose time to run has come to claims; orgs take turns. */
    readonly queueDelayed: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/Jobs") {
  static readonly layer = Layer.effect(
    Jobs,
    Effect.gen(function* () {
      const repository = yield* JobRepository
      const templates = yield* JobTemplates
      const random = yield* SecureRandom.SecureRandom
      const wakeups = yield* Wakeups
      const claim = yield* makeClaim
      const report = yield* makeReport

      const create = Effect.fn("Jobs.create")(function* (input: typeof CreateJob.Type) {
        const orgId = yield* currentTenant
        const jobId = yield* random.ulid
        const template = yield* templates.prepare(input, jobId)
        const idempotencyKey = input.idempotency_key ?? null
        const now = yield* DateTime.now
        const runAt = yield* timeToRun(input.run_at, now)
        const id = yield* repository.insert({ ...template, jobId, orgId, idempotencyKey, runAt, now })
        yield* wakeups.jobs(orgId)
        return id
      })

      const heartbeat = Effect.fn("Jobs.heartbeat")(function* (input: typeof HeartbeatJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const leaseUntil = DateTime.add(now, { seconds: input.lease_seconds ?? defaultLeaseSeconds })
        const { attempt, note, progress } = input
        yield* repository.extendLease(orgId, input.job_id, { leaseUntil, now, attempt, progress, note })
      })

      const complete = Effect.fn("Jobs.complete")(function* (input: typeof CompleteJob.Type) {
        const orgId = yield* currentTenant
        const { attempt, job_id, result = null } = input
        return yield* report(orgId, job_id, { _tag: "Ended", outcome: completed(result), attempt, retry: false })
      })

      const fail = Effect.fn("Jobs.fail")(function* (input: typeof FailJob.Type) {
        const orgId = yield* currentTenant
        const { attempt, error, job_id, mapped_stack = null, retry = false } = input
        return yield* report(orgId, job_id, { _tag: "Ended", outcome: failed(error, mapped_stack), attempt, retry })
      })

      const cancel = Effect.fn("Jobs.cancel")(function* (jobId: string) {
        const orgId = yield* currentTenant
        yield* report(orgId, jobId, { _tag: "Canceled" })
      })

      const get = Effect.fn("Jobs.get")(function* (jobId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, jobId)
      })

      const list = Effect.fn("Jobs.list")(function* (query: Page & JobFilter) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, query, query)
        return { jobs: found.items, next_cursor: nextCursor(found, (job) => job.job_id) }
      })

      const expireLeases = makeExpiry(repository.expireLeases, ({ orgId, jobId }) =>
        report(orgId, jobId, { _tag: "LeaseExpired" }),
      )
      const queueDelayed = makeDelayed(repository.queueDelayed, wakeups.jobs)

      return Jobs.of({ create, claim, heartbeat, complete, fail, cancel, get, list, expireLeases, queueDelayed })
    }),
  )
}
