import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import type { Conflict, InvalidRequest, LimitReached, NotFound, Unauthorized, Unavailable } from "../Errors.ts"
import type { ClaimedJob, ClaimJobs, CompleteJob, CreateJob, FailJob, HeartbeatJob, Job } from "./Job.ts"
import { completed, failed, type JobEnd } from "./JobEnd.ts"
import { type JobFilter, JobRepository } from "./JobRepository.ts"
import { JobTemplates } from "./JobTemplates.ts"
import { makeExpiry } from "./Leases.ts"
import { DefaultLimits } from "../orgs/OrgLimits.ts"
import { RequestOrg } from "../orgs/RequestOrg.ts"
import { nextCursor, type Page } from "../Page.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import * as WaitingClaims from "./WaitingClaims.ts"
import * as WaitingJobs from "./WaitingJobs.ts"
import { Wakeups } from "../webhooks/Wakeups.ts"

const defaultLeaseSeconds = 60

/** Claims jobs, at once or after a wait. */
const makeClaim = Effect.gen(function* () {
  const repository = yield* JobRepository
  const wakeups = yield* Wakeups
  const limited = WaitingClaims.make((yield* DefaultLimits).waitingClaims)

  const claimNow = Effect.fnUntraced(function* (key: WaitingJobs.PollKey, limit: number) {
    const now = yield* DateTime.now
    const leaseUntil = DateTime.add(now, { seconds: key.leaseSeconds })
    return yield* repository.claim(key.orgId, { workflow: key.workflow, limit, now, leaseUntil })
  })
  const waiting = yield* WaitingJobs.make(
    (key, limit) => Effect.provideService(claimNow(key, limit), RequestOrg, key.orgId),
    (orgId, jobs) => Effect.flatMap(DateTime.now, (now) => repository.release(orgId, jobs, now)),
  )
  yield* wakeups.onJobs(waiting.wake)

  return Effect.fn("Jobs.claim")(function* (input: typeof ClaimJobs.Type) {
    const orgId = yield* currentTenant
    const { workflow, limit = 1, lease_seconds: leaseSeconds = defaultLeaseSeconds, wait_seconds: wait = 0 } = input
    const key = { orgId, workflow, leaseSeconds }
    if (wait === 0) return yield* claimNow(key, limit)
    return yield* limited(orgId, waiting.wait(key, limit, wait))
  })
})

/** Finishes jobs with a nonce for their event, and signals the deliveries. */
const makeFinish = Effect.gen(function* () {
  const random = yield* SecureRandom.SecureRandom
  const wakeups = yield* Wakeups

  return Effect.fnUntraced(function* (
    orgId: string,
    jobId: string,
    finish: (end: JobEnd) => ReturnType<JobRepository["Service"]["failExpired"]>,
  ) {
    const nonce = Hex.encode(yield* random.randomBytes(16))
    const hasSweep = yield* finish({ orgId, jobId, nonce, now: yield* DateTime.now })
    yield* wakeups.deliveries
    if (hasSweep) yield* wakeups.sweeps
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
     * Claims queued jobs. With `wait_seconds`, waits that long for the first one. Fails with `LimitReached` when too many
     * claims of the org wait in this replica.
     */
    readonly claim: (
      input: typeof ClaimJobs.Type,
    ) => Effect.Effect<ReadonlyArray<ClaimedJob>, LimitReached | Unauthorized | Unavailable, CurrentPrincipal>
    readonly heartbeat: (
      input: typeof HeartbeatJob.Type,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    readonly complete: (
      input: typeof CompleteJob.Type,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    readonly fail: (
      input: typeof FailJob.Type,
    ) => Effect.Effect<void, NotFound | Conflict | Unauthorized | Unavailable, CurrentPrincipal>
    readonly get: (jobId: string) => Effect.Effect<Job, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    readonly list: (
      query: Page & JobFilter,
    ) => Effect.Effect<
      { readonly jobs: ReadonlyArray<Job>; readonly next_cursor: string | null },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    /** Queues all jobs with an expired lease again, or fails them after their third lease; orgs take turns. */
    readonly expireLeases: Effect.Effect<void, Unavailable>
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
      const finish = yield* makeFinish

      const create = Effect.fn("Jobs.create")(function* (input: typeof CreateJob.Type) {
        const orgId = yield* currentTenant
        const jobId = yield* random.ulid
        const template = yield* templates.prepare(input, jobId)
        const idempotencyKey = input.idempotency_key ?? null
        const id = yield* repository.insert({ ...template, jobId, orgId, idempotencyKey, now: yield* DateTime.now })
        yield* wakeups.jobs(orgId)
        return id
      })

      const heartbeat = Effect.fn("Jobs.heartbeat")(function* (input: typeof HeartbeatJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const leaseUntil = DateTime.add(now, { seconds: input.lease_seconds ?? defaultLeaseSeconds })
        yield* repository.extendLease(orgId, input.job_id, leaseUntil, now)
      })

      const complete = Effect.fn("Jobs.complete")(function* (input: typeof CompleteJob.Type) {
        const orgId = yield* currentTenant
        yield* finish(orgId, input.job_id, (end) => repository.finish(end, completed(input.result ?? null)))
      })

      const fail = Effect.fn("Jobs.fail")(function* (input: typeof FailJob.Type) {
        const orgId = yield* currentTenant
        const { error, mapped_stack = null } = input
        yield* finish(orgId, input.job_id, (end) => repository.finish(end, failed(error, mapped_stack)))
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
        finish(orgId, jobId, repository.failExpired),
      )

      return Jobs.of({ create, claim, heartbeat, complete, fail, get, list, expireLeases })
    }),
  )
}
