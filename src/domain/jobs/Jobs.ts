import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Hex from "effect/encoding/Hex"
import { NotFound } from "../Errors.ts"
import type { Conflict, InvalidRequest, LimitReached, Unauthorized, Unavailable } from "../Errors.ts"
import type { ClaimedJob, ClaimJobs, CompleteJob, CreateJob, FailJob, HeartbeatJob, Job, JobStatus } from "./Job.ts"
import { completed, failed, type JobEnd, type JobOutcome } from "./JobEnd.ts"
import type { ExpiredLeases, LeaseBatch } from "./Leases.ts"
import { expiry } from "./Leases.ts"
import { DefaultLimits } from "../orgs/OrgLimits.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import { RequestOrg } from "../orgs/RequestOrg.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import { type JobTemplate, JobTemplates } from "./JobTemplates.ts"
import * as WaitingClaims from "./WaitingClaims.ts"
import * as WaitingJobs from "./WaitingJobs.ts"
import { Wakeups } from "../webhooks/Wakeups.ts"

/** A job to be kept. `callbackSecret` is encrypted for the job's id. */
export interface NewJob extends JobTemplate {
  readonly jobId: string
  readonly orgId: string
  readonly idempotencyKey: string | null
  readonly now: DateTime.Utc
}

/** Where jobs are kept. */
export class JobRepository extends Context.Service<
  JobRepository,
  {
    /**
     * Inserts a job; the id of the one that its idempotency key made before, when there is one. Fails when the org has
     * no room for another unfinished job or its input.
     */
    readonly insert: (job: NewJob) => Effect.Effect<string, LimitReached | Unavailable>
    /** Gives queued jobs of the org, oldest first, up to a page's bytes, to the caller for as long as the lease runs. */
    readonly claim: (
      orgId: string,
      claim: {
        readonly workflow: string | undefined
        readonly limit: number
        readonly now: DateTime.Utc
        readonly leaseUntil: DateTime.Utc
      },
    ) => Effect.Effect<ReadonlyArray<ClaimedJob>, Unavailable>
    /**
     * Puts jobs whose claim nobody received back into the queue, as if they had not been claimed. A job that was finished
     * or claimed again since stays as it is.
     */
    readonly release: (
      orgId: string,
      jobs: ReadonlyArray<Pick<ClaimedJob, "job_id" | "attempt">>,
      now: DateTime.Utc,
    ) => Effect.Effect<void, Unavailable>
    /** Moves the end of a running job's lease. A job that is not running is a `Conflict`. */
    readonly extendLease: (
      orgId: string,
      jobId: string,
      leaseUntil: DateTime.Utc,
      now: DateTime.Utc,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /**
     * Finishes a job: its outcome, its event and its deliveries in one transaction. The same outcome again changes
     * nothing; the other one is a `Conflict`. Returns whether deliveries to the rest of many endpoints follow in a sweep,
     * which the same transaction has written.
     */
    readonly finish: (end: JobEnd, outcome: JobOutcome) => Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    /** The same with `leaseExpired`; a job whose lease has not run out is a `Conflict`, too. */
    readonly failExpired: (end: JobEnd) => Effect.Effect<boolean, NotFound | Conflict | Unavailable>
    readonly find: (orgId: string, jobId: string) => Effect.Effect<Job, NotFound | Unavailable>
    /** Jobs of the org, newest first. */
    readonly list: (
      orgId: string,
      filter: { readonly status?: JobStatus | undefined; readonly workflow?: string | undefined },
      page: Page,
    ) => Effect.Effect<Found<Job>, Unavailable>
    /** Queues jobs again whose lease ran out, and returns those that had their last attempt: one batch of a sweep. */
    readonly expireLeases: (batch: LeaseBatch) => Effect.Effect<ExpiredLeases, Unavailable>
  }
>()("gatehouse/domain/Jobs/JobRepository") {}

export const jobNotFound = () => new NotFound({ error: "There is no such job." })

const defaultLease = 60

/** Jobs: work that a tenant's workers claim and finish, and whose end is told by webhook. */
export class Jobs extends Context.Service<
  Jobs,
  {
    readonly create: (
      input: typeof CreateJob.Type,
    ) => Effect.Effect<string, InvalidRequest | LimitReached | Unauthorized | Unavailable, CurrentPrincipal>
    /** Claims jobs; with `wait_seconds`, waits that long for the first, unless too many claims of the org wait here. */
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
      query: Page & { readonly status?: JobStatus | undefined; readonly workflow?: string | undefined },
    ) => Effect.Effect<
      { readonly jobs: ReadonlyArray<Job>; readonly next_cursor: string | null },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    /** Queues jobs again whose lease ran out, or fails them after the third: all that there are, orgs in turn. */
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
      const asWaiting = WaitingClaims.make((yield* DefaultLimits).waitingClaims)

      const create = Effect.fn("Jobs.create")(function* (input: typeof CreateJob.Type) {
        const orgId = yield* currentTenant
        const jobId = yield* random.ulid
        const made = yield* repository.insert({
          ...(yield* templates.prepare(input, jobId)),
          jobId,
          orgId,
          idempotencyKey: input.idempotency_key ?? null,
          now: yield* DateTime.now,
        })
        yield* wakeups.jobs(orgId)
        return made
      })

      const claimOnce = Effect.fnUntraced(function* (key: WaitingJobs.PollKey, limit: number) {
        const now = yield* DateTime.now
        const leaseUntil = DateTime.add(now, { seconds: key.leaseSeconds })
        return yield* repository.claim(key.orgId, { workflow: key.workflow, limit, now, leaseUntil })
      })
      const waiting = yield* WaitingJobs.make(
        (key, limit) => Effect.provideService(claimOnce(key, limit), RequestOrg, key.orgId),
        (orgId, jobs) => Effect.flatMap(DateTime.now, (now) => repository.release(orgId, jobs, now)),
      )
      yield* wakeups.onJobs(waiting.wake)

      const claim = Effect.fn("Jobs.claim")(function* (input: typeof ClaimJobs.Type) {
        const orgId = yield* currentTenant
        const { workflow, limit = 1, lease_seconds: leaseSeconds = defaultLease, wait_seconds: wait = 0 } = input
        const key = { orgId, workflow, leaseSeconds }
        if (wait === 0) return yield* claimOnce(key, limit)
        return yield* asWaiting(orgId, waiting.wait(key, limit, wait))
      })

      const heartbeat = Effect.fn("Jobs.heartbeat")(function* (input: typeof HeartbeatJob.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const leaseUntil = DateTime.add(now, { seconds: input.lease_seconds ?? defaultLease })
        yield* repository.extendLease(orgId, input.job_id, leaseUntil, now)
      })

      const end = Effect.fnUntraced(function* (
        orgId: string,
        jobId: string,
        finish: (end: JobEnd) => ReturnType<typeof repository.failExpired>,
      ) {
        const nonce = Hex.encode(yield* random.randomBytes(16))
        const hasMore = yield* finish({ orgId, jobId, nonce, now: yield* DateTime.now })
        yield* wakeups.deliveries
        if (hasMore) yield* wakeups.sweeps
      })

      const complete = Effect.fn("Jobs.complete")(function* (input: typeof CompleteJob.Type) {
        const orgId = yield* currentTenant
        yield* end(orgId, input.job_id, (job) => repository.finish(job, completed(input.result ?? null)))
      })

      const fail = Effect.fn("Jobs.fail")(function* (input: typeof FailJob.Type) {
        const orgId = yield* currentTenant
        const { error, mapped_stack = null } = input
        yield* end(orgId, input.job_id, (job) => repository.finish(job, failed(error, mapped_stack)))
      })

      const get = Effect.fn("Jobs.get")(function* (jobId: string) {
        const orgId = yield* currentTenant
        return yield* repository.find(orgId, jobId)
      })

      const list = Effect.fn("Jobs.list")(function* (
        query: Page & { readonly status?: JobStatus | undefined; readonly workflow?: string | undefined },
      ) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, query, query)
        return { jobs: found.items, next_cursor: nextCursor(found, (job) => job.job_id) }
      })

      const expireLeases = expiry(repository.expireLeases, ({ orgId, jobId }) =>
        end(orgId, jobId, repository.failExpired),
      )

      return Jobs.of({ create, claim, heartbeat, complete, fail, get, list, expireLeases })
    }),
  )
}
