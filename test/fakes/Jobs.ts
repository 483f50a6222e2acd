import { DateTime, Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import type { NewJob, ReportOutcome } from "#src/domain/jobs/JobRepository.ts"
import { jobNotFound, JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { attemptBit, decide, refusedHeartbeat, statusAfter } from "#src/domain/jobs/JobEnd.ts"
import { graceBytes } from "#src/domain/orgs/StoredBytes.ts"
import { toStoredJson } from "./storedJson.ts"
import { writeEvent } from "./outbox.ts"
import { batchOf } from "./roundRobin.ts"
import type { StoredJob } from "./WebhookWorld.ts"
import { jobBytes, ownedBy, rowBytes, rowsOf, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, needRoom, pageOf, withinBytes } from "./World.ts"

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
    priority: job.priority,
    max_attempts: job.maxAttempts,
    retry_delay_seconds: job.retryDelaySeconds,
    run_at: job.runAt,
    attempt: 0,
    progress: null,
    note: null,
    lease_expires_at: null,
    result: null,
    error: null,
    mapped_stack: null,
    created_at: job.now,
    updated_at: job.now,
    finished_at: null,
  },
  idempotencyKey: job.idempotencyKey,
  delayed: job.runAt !== null,
  finishedAttempt: null,
  retriedAttempts: 0,
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
    const change = (
      stored: StoredJob,
      changes: Partial<StoredJob["row"]>,
      others: Partial<Pick<StoredJob, "delayed" | "finishedAttempt" | "retriedAttempts">> = {},
    ) => {
      const row = { ...stored.row, ...changes }
      jobs.set(row.job_id, { ...stored, ...others, row })
      return row
    }
    const hasExpired = ({ row }: StoredJob, now: DateTime.Utc) =>
      row.status === "running" &&
      row.lease_expires_at !== null &&
      DateTime.isLessThanOrEqualTo(row.lease_expires_at, now)
    const report: JobRepository["Service"]["report"] = Effect.fnUntraced(function* (
      { orgId, jobId, endId, nonce, now },
      report,
    ) {
      const stored = yield* find(orgId, jobId)
      const { row } = stored
      const decision = yield* Effect.fromResult(decide({ ...row, ...stored }, report, now))
      const changed = { status: statusAfter(decision), hasSweep: false }
      if (decision._tag === "Unchanged") return changed
      const ended = { lease_expires_at: null, updated_at: now, result: null, error: null, mapped_stack: null }
      if (decision._tag === "Cancel") {
        change(stored, { ...ended, status: "canceled", finished_at: now }, { delayed: false })
        return changed
      }
      const { error, mapped_stack, result, status } = decision.outcome
      const texts = rowBytes("job", [error], [result, mapped_stack]) - rowBytes("job", [row.error], [row.mapped_stack])
      if (texts > graceBytes) yield* needRoom(world, "storedBytes", orgId, texts)
      const outcome = { result: toStoredJson(result), error, mapped_stack: toStoredJson(mapped_stack) }
      if (decision._tag === "Retry") {
        const retriedAttempts = stored.retriedAttempts | attemptBit(row.attempt)
        const queued = { ...ended, ...outcome, status: "queued" as const, run_at: decision.runAt }
        change(stored, queued, { delayed: true, retriedAttempts })
        return changed
      }
      change(
        stored,
        { ...ended, ...outcome, status, finished_at: now },
        { delayed: false, finishedAttempt: decision.by },
      )
      yield* writeEvent(world, random, stored, { ...outcome, status }, { endId, nonce, now })
      return changed
    })
    return JobRepository.of({
      insert: (all) =>
        Effect.gen(function* () {
          const before = new Map(jobs)
          const insertOne = Effect.fnUntraced(function* (job: NewJob) {
            yield* world.needOrg(job.orgId)
            const earlier = [...jobs.values()].find(
              (other) =>
                other.orgId === job.orgId &&
                other.idempotencyKey !== null &&
                other.idempotencyKey === job.idempotencyKey,
            )
            if (earlier !== undefined) return earlier.row.job_id
            if (jobs.has(job.jobId)) throw new Error("The id is taken")
            yield* needRoom(world, "unfinishedJobs", job.orgId)
            const stored = storedJob(job)
            yield* needRoom(world, "storedBytes", job.orgId, jobBytes(stored))
            jobs.set(job.jobId, stored)
            return job.jobId
          })
          return yield* Effect.tapError(Effect.forEach(all, insertOne), () =>
            Effect.sync(() => {
              for (const id of [...jobs.keys()]) if (!before.has(id)) jobs.delete(id)
            }),
          )
        }),

      claim: (orgId, { workflows, limit, now, leaseUntil }) =>
        Effect.sync(() =>
          withinBytes(
            [...jobs.values()]
              .filter(
                ({ delayed, orgId: owner, row }) =>
                  owner === orgId &&
                  row.status === "queued" &&
                  !delayed &&
                  (workflows === undefined || workflows.includes(row.workflow)),
              )
              .toSorted((a, b) => b.row.priority - a.row.priority || (a.row.job_id < b.row.job_id ? -1 : 1))
              .slice(0, limit),
          ).map((stored) => {
            const { job_id, workflow, input, deployment_id, attempt } = change(stored, {
              status: "running",
              attempt: stored.row.attempt + 1,
              progress: null,
              note: null,
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

      extendLease: (orgId, jobId, { attempt, leaseUntil, note, now, progress }) =>
        Effect.flatMap(find(orgId, jobId), (stored) => {
          const { row } = stored
          if (row.status !== "running" || (attempt ?? row.attempt) !== row.attempt) {
            return Effect.fail(refusedHeartbeat(row, attempt))
          }
          const said = { progress: progress ?? row.progress, note: note ?? row.note }
          change(stored, { ...said, lease_expires_at: leaseUntil, updated_at: now })
          return Effect.void
        }),

      report,
      reportAll: (_, reports) =>
        Effect.forEach(reports, ({ end, report: reported }) => Effect.result(report(end, reported))).pipe(
          Effect.flatMap((all) =>
            Effect.forEach(all, (outcome) =>
              Result.isFailure(outcome) && outcome.failure._tag === "Unavailable"
                ? Effect.fail(outcome.failure)
                : Effect.succeed(outcome as ReportOutcome),
            ),
          ),
        ),

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

      expireLeases: ({ now, ...batch }) =>
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
            picked.filter(({ row }) => row.attempt < row.max_attempts),
            picked.filter(({ row }) => row.attempt >= row.max_attempts),
          ]
          for (const stored of again) change(stored, { status: "queued", lease_expires_at: null, updated_at: now })
          return {
            queued: again.length,
            exhausted: exhausted.map(({ orgId, row }) => ({ orgId, jobId: row.job_id })),
            next,
          }
        }),

      queueDelayed: ({ now, ...batch }) =>
        Effect.sync(() => {
          const timeOf = ({ row }: StoredJob) => DateTime.toEpochMillis(row.run_at!)
          const { next, picked } = batchOf(
            [...jobs.values()]
              .filter(({ delayed, row }) => delayed && row.status === "queued")
              .toSorted((a, b) => timeOf(a) - timeOf(b)),
            (stored) => DateTime.isLessThanOrEqualTo(stored.row.run_at!, now),
            batch,
          )
          for (const stored of picked) change(stored, { updated_at: now }, { delayed: false })
          return { orgs: [...new Set(picked.map(({ orgId }) => orgId))].toSorted(), moved: picked.length, next }
        }),
    })
  }),
)
