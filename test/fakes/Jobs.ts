import { DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { NewJob } from "#src/domain/jobs/JobRepository.ts"
import { jobNotFound, JobRepository } from "#src/domain/jobs/JobRepository.ts"
import type { Conflict } from "#src/domain/Errors.ts"
import { isUnfinishedAndExpired, isUnfinished, leaseExpired, notRunning } from "#src/domain/jobs/JobEnd.ts"
import type { JobEnd, JobOutcome } from "#src/domain/jobs/JobEnd.ts"
import { toStoredJson } from "#src/domain/StoredJson.ts"
import { writeEvent } from "./outbox.ts"
import { batchOf } from "./turns.ts"
import type { StoredJob } from "./WebhookWorld.ts"
import { byteLength, ownedBy, rowsOf, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, needRoom, pageOf, rowsAfter, withinBytes } from "./World.ts"

/** The stored row of a queued job. */
export const storedJob = (job: NewJob, owner = job.jobId): StoredJob => ({
  orgId: job.orgId,
  row: {
    job_id: job.jobId,
    workflow: job.workflow,
    status: "queued",
    input: toStoredJson(job.input),
    deployment_id: job.deploymentId,
    callback_url: job.callbackUrl,
    skip_callbacks: job.skipCallbacks,
    attempt: 0,
    lease_expires_at: null,
    result: null,
    error: null,
    mapped_stack: null,
    created_at: job.now,
    updated_at: job.now,
    finished_at: null,
  },
  idempotencyKey: job.idempotencyKey,
  secret: job.callbackSecret === null ? null : { stored: job.callbackSecret, owner },
})

/** Jobs in memory. */
export const layer = Layer.effect(
  JobRepository,
  Effect.gen(function* () {
    const world = yield* WebhookWorld
    const { jobs } = world
    const random = yield* SecureRandom.SecureRandom
    const find = (orgId: string, jobId: string) => findOr(ownedBy(jobs, orgId, jobId), jobNotFound)
    const change = (stored: StoredJob, changes: Partial<StoredJob["row"]>) => {
      const row = { ...stored.row, ...changes }
      jobs.set(row.job_id, { ...stored, row })
      return row
    }
    const hasExpired = ({ row }: StoredJob, now: DateTime.Utc) =>
      row.status === "running" &&
      row.lease_expires_at !== null &&
      DateTime.isLessThanOrEqualTo(row.lease_expires_at, now)
    const finish = Effect.fnUntraced(function* (
      { orgId, jobId, nonce, now }: JobEnd,
      outcome: JobOutcome,
      isOpen: (row: StoredJob["row"]) => Effect.Effect<boolean, Conflict>,
    ) {
      const stored = yield* find(orgId, jobId)
      if (!(yield* isOpen(stored.row))) return false
      const { error, mapped_stack, result, status } = outcome
      const finished = { status, result: toStoredJson(result), error, mapped_stack: toStoredJson(mapped_stack) }
      change(stored, { ...finished, lease_expires_at: null, finished_at: now, updated_at: now })
      yield* writeEvent(world, random, stored, finished, nonce, now)
      return false
    })

    return JobRepository.of({
      insert: (job) =>
        Effect.gen(function* () {
          world.needOrg(job.orgId)
          const earlier = [...jobs.values()].find(
            (other) =>
              other.orgId === job.orgId && other.idempotencyKey !== null && other.idempotencyKey === job.idempotencyKey,
          )
          if (earlier !== undefined) return earlier.row.job_id
          if (jobs.has(job.jobId)) throw new Error("The id is taken")
          yield* needRoom(world, "unfinishedJobs", job.orgId)
          yield* needRoom(world, "storedBytes", job.orgId, byteLength(job.input))
          jobs.set(job.jobId, storedJob(job))
          return job.jobId
        }),

      claim: (orgId, { workflow, limit, now, leaseUntil }) =>
        Effect.sync(() =>
          withinBytes(
            rowsAfter(
              [...jobs.values()].filter(
                ({ orgId: owner, row }) =>
                  owner === orgId && row.status === "queued" && (workflow === undefined || row.workflow === workflow),
              ),
              ({ row }) => row.job_id,
              { limit: limit - 1 },
            ),
          ).map((stored) => {
            const { job_id, workflow, input, deployment_id, attempt } = change(stored, {
              status: "running",
              attempt: stored.row.attempt + 1,
              lease_expires_at: leaseUntil,
              updated_at: now,
            })
            return { job_id, workflow, input, deployment_id, attempt, lease_expires_at: leaseUntil }
          }),
        ),

      release: (orgId, claimed, now) =>
        Effect.sync(() => {
          for (const { attempt, job_id } of claimed) {
            const stored = ownedBy(jobs, orgId, job_id)
            if (stored?.row.status !== "running" || stored.row.attempt !== attempt) continue
            change(stored, { status: "queued", attempt: attempt - 1, lease_expires_at: null, updated_at: now })
          }
        }),

      extendLease: (orgId, jobId, leaseUntil, now) =>
        Effect.flatMap(find(orgId, jobId), (stored) => {
          if (stored.row.status !== "running") return Effect.fail(notRunning())
          change(stored, { lease_expires_at: leaseUntil, updated_at: now })
          return Effect.void
        }),

      finish: (end, outcome) => finish(end, outcome, (row) => isUnfinished(row, outcome)),
      failExpired: (end) => finish(end, leaseExpired, (row) => isUnfinishedAndExpired(row, end.now)),

      find: (orgId, jobId) => Effect.map(find(orgId, jobId), ({ row }) => row),

      list: (orgId, { status, workflow }, page) =>
        Effect.sync(() =>
          pageOf(
            rowsOf(jobs, orgId).filter(
              (row) =>
                (status === undefined || row.status === status) &&
                (workflow === undefined || row.workflow === workflow),
            ),
            (row) => row.job_id,
            page,
            -1,
          ),
        ),

      expireLeases: ({ now, maxAttempts, ...batch }) =>
        Effect.sync(() => {
          const leaseOf = ({ row }: StoredJob) => DateTime.toEpochMillis(row.lease_expires_at!)
          const { next, picked } = batchOf(
            [...jobs.values()]
              .filter((stored) => stored.row.status === "running")
              .toSorted((a, b) => leaseOf(a) - leaseOf(b)),
            (stored) => hasExpired(stored, now),
            batch,
          )
          const [again, exhausted] = [
            picked.filter(({ row }) => row.attempt < maxAttempts),
            picked.filter(({ row }) => row.attempt >= maxAttempts),
          ]
          for (const stored of again) change(stored, { status: "queued", lease_expires_at: null, updated_at: now })
          return {
            queued: again.length,
            exhausted: exhausted.map(({ orgId, row }) => ({ orgId, jobId: row.job_id })),
            next,
          }
        }),
    })
  }),
)
