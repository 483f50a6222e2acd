import { DateTime, Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import type { NewJob, ReportResult, UniqueJob } from "#src/domain/jobs/JobRepository.ts"
import {
  jobNotFailed,
  jobNotFound,
  JobRepository,
  keyIsTaken,
  stepsTooLarge,
  sweepNotFound,
} from "#src/domain/jobs/JobRepository.ts"
import { attemptLog, maxLinesBytes, maxStepsBytes } from "#src/domain/jobs/Job.ts"
import type { JobSweepFilter, JobSweepOrder } from "#src/domain/jobs/JobSweep.ts"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import { decide, leaseExpired, refusedHeartbeat, statusAfter, withRetried } from "#src/domain/jobs/JobEnd.ts"
import { byteLength, graceBytes } from "#src/domain/orgs/StoredBytes.ts"
import { toStoredJson } from "./storedJson.ts"
import { writeEvent } from "./outbox.ts"
import { batchOf } from "./roundRobin.ts"
import { maxWorkflows, tooManyWorkflows, workflowNotFound } from "#src/domain/jobs/WorkflowSettings.ts"
import type { StoredJob, StoredWorkflow } from "./WebhookWorld.ts"
import { jobBytes, ownedBy, rowBytes, textOfLines, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, keepEntry, needRoom, pageOf, withinBytes } from "./World.ts"

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
    concurrency_key: job.concurrencyKey,
    priority: job.priority,
    max_attempts: job.maxAttempts,
    retry_delay_seconds: job.retryDelaySeconds,
    run_at: job.runAt,
    unique_key: job.unique?.key ?? null,
    expires_at:
      job.expiresInSeconds === null ? null : DateTime.add(job.runAt ?? job.now, { seconds: job.expiresInSeconds }),
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
  retriedAttempts: [],
  attemptsBefore: 0,
  log: [],
  lines: [],
  steps: [],
  secret: job.callbackSecret === null ? null : { stored: job.callbackSecret, owner },
})

/** A job as it is read: one that was claimed does not expire. */
const shown = ({ row }: Pick<StoredJob, "row">) => ({ ...row, expires_at: row.attempt === 0 ? row.expires_at : null })

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
      others: Partial<Omit<StoredJob, "row">> = {},
    ) => {
      const row = { ...stored.row, ...changes }
      jobs.set(row.job_id, { ...stored, ...others, row })
      return row
    }
    const logged = ({ log, row }: StoredJob, error: string | null, now: DateTime.Utc) =>
      [...log, { attempt: row.attempt, ended_at: now, note: row.note, error: error!.slice(0, 1_000) }].slice(-20)
    const cancel = (stored: StoredJob, now: DateTime.Utc) => {
      const ended = { lease_expires_at: null, updated_at: now, result: null, error: null, mapped_stack: null }
      change(stored, { ...ended, status: "canceled", expires_at: null, finished_at: now }, { delayed: false })
    }
    /** Queues a job again: it is the newest one of its unique key again. */
    const requeue: typeof change = (stored, changes, others) => {
      jobs.delete(stored.row.job_id)
      return change(stored, { ...changes, status: "queued" }, others)
    }
    const queueAgain = (stored: StoredJob, input: unknown, now: DateTime.Utc) => {
      const { attempt, max_attempts } = stored.row
      requeue(
        stored,
        {
          input,
          max_attempts: attempt + max_attempts - stored.attemptsBefore,
          run_at: null,
          progress: null,
          note: null,
          updated_at: now,
          finished_at: null,
        },
        { attemptsBefore: attempt, finishedAttempt: null, log: attemptLog(stored.log, stored.row) },
      )
    }
    const selected = (orgId: string, { error, since, status, until, workflow }: JobSweepFilter) =>
      [...jobs.values()].filter(
        ({ orgId: owner, row }) =>
          owner === orgId &&
          (status === undefined || row.status === status) &&
          (workflow === undefined || row.workflow === workflow) &&
          (error === undefined || row.error?.startsWith(error) === true) &&
          (since === undefined || row.job_id >= idAt(DateTime.toEpochMillis(since))) &&
          (until === undefined || row.job_id < idAt(DateTime.toEpochMillis(until))),
      )
    const swept = (orgId: string, { filter, kind }: JobSweepOrder) =>
      kind === "retry"
        ? selected(orgId, { ...filter, status: "failed" }).toReversed()
        : selected(orgId, filter).filter(({ row }) => row.status === "queued" || row.status === "running")
    const newestOf = (orgId: string, workflow: string, key: string) =>
      [...jobs.values()].findLast(
        (other) => other.orgId === orgId && other.row.workflow === workflow && other.row.unique_key === key,
      )
    /** The unfinished job of a unique key, which prevents the retry of another. */
    const holderOf = ({ orgId, row }: StoredJob) => {
      const newest = row.unique_key === null ? undefined : newestOf(orgId, row.workflow, row.unique_key)
      return newest?.row.status === "queued" || newest?.row.status === "running" ? newest.row.job_id : undefined
    }
    const isReplaced = (stored: StoredJob) => (holderOf(stored) ?? stored.row.job_id) !== stored.row.job_id
    /** The job that prevents a new one. */
    const takenBy = ({ orgId, workflow }: NewJob, unique: UniqueJob) => {
      const newest = newestOf(orgId, workflow, unique.key)
      if (newest === undefined) return undefined
      const isTaken =
        unique.states.includes(newest.row.status) ||
        (unique.since !== null && newest.row.job_id.slice(0, 10) >= idAt(DateTime.toEpochMillis(unique.since)))
      return isTaken ? newest : undefined
    }
    const settingsOf = (orgId: string) => {
      const known = world.workflows.get(orgId) ?? new Map<string, StoredWorkflow>()
      world.workflows.set(orgId, known)
      return known
    }
    const policyOf = ({ orgId, row }: StoredJob) => settingsOf(orgId).get(row.workflow)?.settings.retry ?? null
    /** The first jobs that exceed no limit; of a workflow with a limit for each key, keys take turns. */
    const withinLimits = (orgId: string, queued: ReadonlyArray<StoredJob>, limit: number, now: number) => {
      const all = settingsOf(orgId)
      const runs = (workflow: string, key?: string | null) =>
        [...jobs.values()].filter(
          ({ orgId: owner, row }) =>
            owner === orgId &&
            row.status === "running" &&
            row.workflow === workflow &&
            (key === undefined || row.concurrency_key === key),
        ).length
      const candidates = [...Map.groupBy(queued, ({ row }) => row.workflow)].flatMap(([workflow, ofWorkflow]) => {
        const stored = all.get(workflow)
        if (stored === undefined) return ofWorkflow
        const { concurrency, concurrency_per_key: perKey, rate } = stored.settings
        const started = stored.starts.filter((at) => rate !== null && at > now - rate.window_seconds * 1000).length
        const room = Math.min(limit, (concurrency ?? Infinity) - runs(workflow), (rate?.limit ?? Infinity) - started)
        if (perKey === null) return ofWorkflow.slice(0, Math.max(0, room))
        const keys = Map.groupBy(ofWorkflow, ({ row }) => row.concurrency_key)
        const order = [...keys.keys()].filter((key) => key !== null).toSorted()
        const turns = [...order.filter((key) => key > stored.lastKey), ...order.filter((key) => key <= stored.lastKey)]
        const ranked = [null, ...turns].flatMap((key, turn) =>
          (keys.get(key) ?? [])
            .slice(0, key === null ? undefined : Math.max(0, perKey - runs(workflow, key)))
            .map((job, round) => ({ job, round, turn })),
        )
        return ranked
          .toSorted((a, b) => a.round - b.round || a.turn - b.turn)
          .slice(0, Math.max(0, room))
          .map(({ job }) => job)
      })
      const taken = candidates
        .toSorted((a, b) => b.row.priority - a.row.priority || (a.row.job_id < b.row.job_id ? -1 : 1))
        .slice(0, limit)
      for (const job of candidates) {
        const stored = all.get(job.row.workflow)
        if (stored === undefined || !taken.includes(job)) continue
        stored.starts.push(now)
        stored.lastKey = job.row.concurrency_key ?? stored.lastKey
      }
      return taken
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
      const decision = yield* Effect.fromResult(
        decide({ ...row, ...stored, retryPolicy: policyOf(stored), isReplaced: isReplaced(stored) }, report, {
          now,
          nonce,
        }),
      )
      const changed = { status: statusAfter(decision), hasSweep: false }
      if (decision._tag === "Unchanged") return changed
      const ended = { lease_expires_at: null, updated_at: now, result: null, error: null, mapped_stack: null }
      if (decision._tag === "Cancel") {
        cancel(stored, now)
        return changed
      }
      const { error, mapped_stack, result, status } = decision.outcome
      const texts = rowBytes("job", [error], [result, mapped_stack]) - rowBytes("job", [row.error], [row.mapped_stack])
      if (texts > graceBytes) yield* needRoom(world, "storedBytes", orgId, texts)
      const outcome = { result: toStoredJson(result), error, mapped_stack: toStoredJson(mapped_stack) }
      if (decision._tag === "Retry") {
        const retriedAttempts = withRetried({ ...stored, attempt: row.attempt })
        const queued = { ...ended, ...outcome, run_at: decision.runAt }
        const log = logged(stored, error, now)
        requeue(stored, queued, { delayed: true, retriedAttempts, log })
        return changed
      }
      change(
        stored,
        { ...ended, ...outcome, status, expires_at: null, finished_at: now },
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
            if (earlier !== undefined) return { jobId: earlier.row.job_id, created: false }
            const taken = job.unique === null ? undefined : takenBy(job, job.unique)
            if (taken !== undefined) {
              if (job.unique!.debounces) {
                const input = toStoredJson(job.input)
                const more = rowBytes("job", [], [input]) - rowBytes("job", [], [taken.row.input])
                if (more > graceBytes) yield* needRoom(world, "storedBytes", job.orgId, more)
                const { attempt, created_at, expires_at: expiry, run_at } = taken.row
                const max_attempts = attempt + taken.row.max_attempts - taken.attemptsBefore
                const millis = DateTime.toEpochMillis(job.runAt!) - DateTime.toEpochMillis(run_at ?? created_at)
                const expires_at = expiry && DateTime.add(expiry, { milliseconds: millis })
                change(
                  taken,
                  { input, expires_at, max_attempts, run_at: job.runAt, updated_at: job.now },
                  { attemptsBefore: attempt, delayed: true, steps: [] },
                )
              }
              return { jobId: taken.row.job_id, created: false }
            }
            if (jobs.has(job.jobId)) throw new Error("The id is taken")
            yield* needRoom(world, "unfinishedJobs", job.orgId)
            const seconds =
              job.expiresInSeconds ?? settingsOf(job.orgId).get(job.workflow)?.settings.expires_in_seconds ?? null
            const stored = storedJob({ ...job, expiresInSeconds: seconds })
            yield* needRoom(world, "storedBytes", job.orgId, jobBytes(stored))
            jobs.set(job.jobId, stored)
            return { jobId: job.jobId, created: true }
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
            withinLimits(
              orgId,
              [...jobs.values()]
                .filter(
                  ({ delayed, orgId: owner, row }) =>
                    owner === orgId &&
                    row.status === "queued" &&
                    !delayed &&
                    (row.attempt > 0 || row.expires_at === null || DateTime.isGreaterThan(row.expires_at, now)) &&
                    (workflows === undefined || workflows.includes(row.workflow)),
                )
                .toSorted((a, b) => b.row.priority - a.row.priority || (a.row.job_id < b.row.job_id ? -1 : 1)),
              limit,
              DateTime.toEpochMillis(now),
            ),
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
            if (stored?.row.status !== "running" || stored.row.attempt !== attempt || isReplaced(stored)) continue
            requeue(stored, { attempt: attempt - 1, lease_expires_at: null, updated_at: now })
          }
        }),

      extendLease: Effect.fnUntraced(function* (orgId, jobId, heartbeat) {
        const { attempt, leaseUntil, lines = [], note, now, progress } = heartbeat
        const stored = yield* find(orgId, jobId)
        const { row } = stored
        if (row.status !== "running" || (attempt ?? row.attempt) !== row.attempt) {
          return yield* refusedHeartbeat(row, attempt)
        }
        const size = byteLength(textOfLines(lines))
        if (size > graceBytes) yield* needRoom(world, "storedBytes", orgId, size)
        const kept = [...stored.lines, ...lines]
        while (byteLength(textOfLines(kept)) > maxLinesBytes) kept.shift()
        const said = { progress: progress ?? row.progress, note: note ?? row.note }
        const lease = { lease_expires_at: leaseUntil ?? row.lease_expires_at, updated_at: now }
        change(stored, { ...said, ...lease }, { lines: kept })
        return undefined
      }),

      report,
      reportAll: (_, reports) =>
        Effect.forEach(reports, ({ end, report: reported }) => Effect.result(report(end, reported))).pipe(
          Effect.flatMap((all) =>
            Effect.forEach(all, (outcome) =>
              Result.isFailure(outcome) && outcome.failure._tag === "Unavailable"
                ? Effect.fail(outcome.failure)
                : Effect.succeed(outcome as ReportResult),
            ),
          ),
        ),

      find: (orgId, jobId) =>
        Effect.map(find(orgId, jobId), ({ log, row, steps }) => ({
          ...shown({ row }),
          attempt_log: attemptLog(log, row),
          steps,
        })),
      lines: (orgId, jobId) => Effect.map(find(orgId, jobId), ({ lines }) => lines),
      finishStep: Effect.fnUntraced(function* (orgId, jobId, { attempt, name, now, result }) {
        const stored = yield* find(orgId, jobId)
        const { row, steps } = stored
        if (row.status !== "running" || attempt !== row.attempt) return yield* refusedHeartbeat(row, attempt)
        if (steps.some((step) => step.name === name)) return undefined
        const all = [...steps, { name, finished_at: now, result }]
        const size = byteLength(textOfLines(all.slice(-1)))
        if (byteLength(textOfLines(all)) > maxStepsBytes) return yield* stepsTooLarge()
        if (size > graceBytes) yield* needRoom(world, "storedBytes", orgId, size)
        change(stored, { updated_at: now }, { steps: all })
        return undefined
      }),

      list: (orgId, filter, page) =>
        Effect.sync(() => ({
          ...pageOf(selected(orgId, filter).map(shown), (row) => row.job_id, page, -1),
          scannedTo: null,
        })),

      retry: Effect.fnUntraced(function* (orgId, jobId, input, now, entry) {
        const stored = yield* find(orgId, jobId)
        if (stored.row.status !== "failed") return yield* jobNotFailed(stored.row.status)
        yield* world.needOrg(orgId)
        yield* needRoom(world, "unfinishedJobs", orgId)
        const text = input === undefined ? stored.row.input : toStoredJson(input)
        const more = rowBytes("job", [], [text]) - rowBytes("job", [], [stored.row.input])
        if (more > graceBytes) yield* needRoom(world, "storedBytes", orgId, more)
        const holder = holderOf(stored)
        if (holder !== undefined) return yield* keyIsTaken(holder)
        queueAgain(stored, text, now)
        keepEntry(world, orgId, entry)
        return undefined
      }),
      countSwept: (orgId, order) => Effect.sync(() => ({ count: swept(orgId, order).length, isAll: true })),
      // The fake has no sweeps: one has ended when it is answered.
      startSweep: (orgId, order, { at }) =>
        Effect.sync(() =>
          swept(orgId, order).forEach((stored) => {
            if (order.kind === "cancel") cancel(stored, at)
            else if (holderOf(stored) === undefined) queueAgain(stored, stored.row.input, at)
          }),
        ),
      sweeps: () => Effect.succeed([]),
      endSweep: () => Effect.fail(sweepNotFound()),
      causes: (orgId, filter) =>
        Effect.sync(() => {
          const failed = selected(orgId, { ...filter, status: "failed" }).map(({ row }) => row)
          const groups = Map.groupBy(failed, ({ error, workflow }) => `${workflow}\n${error!.slice(0, 200)}`)
          return [...groups.values()]
            .toSorted((a, b) => b.length - a.length)
            .map((group) => {
              const [newest] = group.toSorted((a, b) => (a.job_id < b.job_id ? 1 : -1))
              const { error, finished_at, job_id, workflow } = newest!
              const latest = { job_id, at: finished_at! }
              return { workflow, error: error!.slice(0, 200), jobs: group.length, latest }
            })
        }),

      queue: (orgId, since) =>
        Effect.sync(() => {
          const own = selected(orgId, {}).filter(({ row }) => row.status === "queued" || row.status === "running")
          const due = own.filter(({ delayed, row }) => row.status === "queued" && !delayed)
          const running = own.filter(({ row }) => row.status === "running")
          const of = (all: ReadonlyArray<StoredJob>, workflow: string, key?: string | null) =>
            all.filter(({ row }) => row.workflow === workflow && (key === undefined || row.concurrency_key === key))
              .length
          const keys = new Map(due.map(({ row }) => [`${row.workflow} ${row.concurrency_key}`, row]))
          return {
            workflows: [...new Set(own.map(({ row }) => row.workflow))]
              .map((workflow) => {
                const counts = { queued: of(due, workflow), running: of(running, workflow) }
                const delayed = of(own, workflow) - counts.queued - counts.running
                return { workflow, ...counts, delayed, is_all: true }
              })
              .toSorted((a, b) => b.queued - a.queued),
            is_all: true,
            oldest_due_at: due.map(({ row }) => row.updated_at).toSorted(DateTime.Order)[0] ?? null,
            created: selected(orgId, { since }).length,
            created_since: since,
            keys: [...keys.values()]
              .flatMap(({ concurrency_key: key, workflow }) =>
                key === null
                  ? []
                  : {
                      workflow,
                      concurrency_key: key,
                      queued: of(due, workflow, key),
                      running: of(running, workflow, key),
                    },
              )
              .toSorted((a, b) => b.queued - a.queued)
              .slice(0, 10),
          }
        }),

      hasLimits: (orgId) => settingsOf(orgId).size > 0,
      setWorkflow: (orgId, settings, entry) =>
        Effect.gen(function* () {
          yield* world.needOrg(orgId)
          const all = settingsOf(orgId)
          const known = all.get(settings.workflow)
          if (known === undefined && all.size >= maxWorkflows) return yield* tooManyWorkflows()
          const { created_at = settings.created_at } = known?.settings ?? {}
          all.set(settings.workflow, { starts: [], lastKey: "", ...known, settings: { ...settings, created_at } })
          keepEntry(world, orgId, entry)
        }),
      workflows: (orgId, workflow) =>
        Effect.sync(() =>
          [...settingsOf(orgId).values()]
            .map(({ settings }) => settings)
            .filter((one) => workflow === undefined || one.workflow === workflow)
            .toSorted((a, b) => (a.workflow < b.workflow ? -1 : 1)),
        ),
      deleteWorkflow: (orgId, workflow, entry) =>
        Effect.suspend(() =>
          settingsOf(orgId).delete(workflow)
            ? Effect.sync(() => keepEntry(world, orgId, entry))
            : Effect.fail(workflowNotFound()),
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
          const isExhausted = (stored: StoredJob) => {
            const { attempts } = policyOf(stored) ?? {}
            const { attempt, max_attempts } = stored.row
            const most = attempts === undefined ? max_attempts : stored.attemptsBefore + attempts
            return attempt >= most || isReplaced(stored)
          }
          const [again, exhausted] = [
            picked.filter((stored) => !isExhausted(stored)),
            picked.filter((stored) => isExhausted(stored)),
          ]
          for (const stored of again) {
            const log = logged(stored, leaseExpired.error, now)
            requeue(stored, { lease_expires_at: null, updated_at: now }, { log })
          }
          return {
            queued: again.length,
            exhausted: exhausted.map(({ orgId, row }) => ({ orgId, jobId: row.job_id })),
            next,
          }
        }),

      findExpired: ({ now, ...batch }) =>
        Effect.sync(() => {
          const timeOf = ({ row }: StoredJob) => DateTime.toEpochMillis(row.expires_at!)
          const { next, picked } = batchOf(
            [...jobs.values()]
              .filter(({ row }) => row.status === "queued" && row.attempt === 0 && row.expires_at !== null)
              .toSorted((a, b) => timeOf(a) - timeOf(b)),
            (stored) => timeOf(stored) <= DateTime.toEpochMillis(now),
            batch,
          )
          return { queued: 0, exhausted: picked.map(({ orgId, row }) => ({ orgId, jobId: row.job_id })), next }
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
