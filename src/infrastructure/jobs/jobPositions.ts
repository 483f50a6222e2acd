import { LRUCache } from "lru-cache"
import type { SqlClient } from "effect/sql"
import { idAt, timeOfId } from "../database/fragments.ts"

/**
 * How far before a position claims begin to read, in milliseconds: another replica's transaction may commit a little
 * later than the time in its job's id. What commits later still is found by a look.
 */
const marginMillis = 500
/** A claim that takes longer than this may have read many dead entries. */
const slowClaimMillis = 2
/** A look that takes longer than this, in milliseconds of the database, has read many dead entries. */
const slowLookMillis = 0.5
/** The shortest wait between two looks at a queue. */
const minWaitMillis = 1_000
/** The wait between two looks, as a multiple of the time of one: looks use at most a twentieth of a connection. */
const waitFactor = 20
/** Jobs of each priority whose ids a look returns. */
export const maxLookedJobs = 100
/** Orgs whose queues are remembered. */
const maxOrgs = 1_000
/** Queues of each org, and jobs before the positions of each queue. */
const maxPerOrg = 1_000

/** A queue of an org: that of a workflow, or of all of them. */
interface Queue {
  /** Whether claims begin at the positions. Else they begin at the first entry, and need no priorities. */
  isUsed: boolean
  /** For each priority, the time in the id from which claims read, in milliseconds. */
  readonly priorities: Map<number, number>
  /** Jobs before the positions: they were queued again, or another replica queued them late. */
  left: Set<string>
  /** Those that were added since the last look began. */
  readonly added: Set<string>
  isLooking: boolean
  /** When the next look may begin. */
  lookAt: number
}

export interface QueuedJob {
  readonly orgId: string
  readonly workflow: string
  readonly priority: number
  readonly id: string
}

/**
 * What a claim reads: for each workflow (null: all) and priority, the highest first, the jobs from an id on; and some
 * single jobs.
 */
export interface JobReads {
  readonly heads: ReadonlyArray<{ readonly workflow: string | null; readonly priority: number; readonly since: string }>
  readonly left: ReadonlyArray<string>
}

/** What a look found: for each priority its first jobs. */
export interface JobLook {
  /** When it began, in milliseconds since 1970. */
  readonly at: number
  readonly heads: ReadonlyArray<readonly [priority: number, ids: ReadonlyArray<string>]>
  readonly tookMillis: number
}

/**
 * Where claims of jobs begin to read (ADR 30). Claimed jobs leave dead index entries, which stay while any old
 * transaction is open. The claims of a queue that became slow begin at the first job that the last claim found, for
 * each priority. Jobs that come before it are remembered by their ids: this process says which jobs it queues again,
 * and a look, which reads the queue from its beginning beside the claims, finds what other replicas queued.
 *
 * Times that are given as `now` are monotonic, in milliseconds.
 */
export const makeJobPositions = () => {
  /** By org and workflow; `null` is the queue of all workflows. Only queues with a claim that was slow. */
  const orgs = new LRUCache<string, Map<string | null, Queue>>({ max: maxOrgs })

  const create = (orgId: string, workflow: string | null): Queue => {
    const queue: Queue = {
      isUsed: false,
      priorities: new Map(),
      left: new Set(),
      added: new Set(),
      isLooking: false,
      lookAt: 0,
    }
    const queues = orgs.get(orgId) ?? new Map<string | null, Queue>()
    orgs.set(orgId, queues)
    if (queues.size < maxPerOrg) queues.set(workflow, queue)
    return queue
  }

  /** Adds a job that the queue got. */
  const add = (queue: Queue, { id, priority }: Pick<QueuedJob, "id" | "priority">) => {
    const [at, position] = [timeOfId(id), queue.priorities.get(priority)]
    if (position === undefined || !queue.isUsed) queue.priorities.set(priority, Math.min(at, position ?? Infinity))
    else if (at < position - marginMillis && queue.left.size < maxPerOrg) {
      queue.left.add(id)
      queue.added.add(id)
    }
  }

  return {
    /** Whether any queue has positions: only then must be said which jobs were queued again. */
    isUsed: () => [...orgs.values()].some((queues) => [...queues.values()].some(({ isUsed }) => isUsed)),

    /** What a claim of some workflows reads (`[null]`: all); `undefined` when it reads from the first entry. */
    reads: (orgId: string, workflows: ReadonlyArray<string | null>): JobReads | undefined => {
      const queues = workflows.map((workflow) => ({ workflow, queue: orgs.get(orgId)?.get(workflow) }))
      const used = queues.flatMap(({ queue, workflow }) => (queue?.isUsed === true ? [{ queue, workflow }] : []))
      if (used.length < queues.length) return undefined
      return {
        heads: used
          .flatMap(({ queue, workflow }) =>
            [...queue.priorities].map(([priority, at]) => ({ workflow, priority, since: idAt(at - marginMillis) })),
          )
          .sort((a, b) => b.priority - a.priority),
        left: used.flatMap(({ queue }) => [...queue.left]),
      }
    },

    /** Remembers what a claim found; returns the queues at which a look is due. */
    claimed: (
      orgId: string,
      workflows: ReadonlyArray<string | null>,
      jobs: ReadonlyArray<Omit<QueuedJob, "orgId">>,
      tookMillis: number,
      now: number,
    ): ReadonlyArray<string | null> =>
      workflows.filter((workflow) => {
        const known = orgs.get(orgId)?.get(workflow)
        if (known === undefined && tookMillis < slowClaimMillis) return false
        const queue = known ?? create(orgId, workflow)
        const first = new Map<number, number>()
        for (const { id, priority, workflow: of } of jobs) {
          if (workflow !== null && workflow !== of) continue
          if (!queue.left.delete(id)) first.set(priority, Math.min(timeOfId(id), first.get(priority) ?? Infinity))
        }
        if (queue.isUsed) for (const [priority, at] of first) queue.priorities.set(priority, at)
        if (queue.isLooking || now < queue.lookAt) return false
        queue.isLooking = true
        queue.added.clear()
        return true
      }),

    /** Remembers what a look at a queue found; `undefined` when it failed. */
    looked: (orgId: string, workflow: string | null, look: JobLook | undefined, now: number) => {
      const queue = orgs.get(orgId)?.get(workflow)
      if (queue === undefined) return
      queue.isLooking = false
      queue.lookAt = now + Math.max(minWaitMillis, waitFactor * (look?.tookMillis ?? 0))
      if (look === undefined) return
      if (look.tookMillis <= slowLookMillis) {
        queue.isUsed = false
        queue.priorities.clear()
        queue.left.clear()
        return
      }
      queue.left = new Set(queue.added)
      for (const [priority, ids] of look.heads) {
        // There may be more before the position than it remembers.
        if (ids.length < maxLookedJobs) for (const id of ids) add(queue, { id, priority })
        else queue.priorities.set(priority, Math.min(timeOfId(ids[0]!), queue.priorities.get(priority) ?? Infinity))
      }
      // Jobs that another replica creates with the priority that most jobs have are found without a look.
      if (!queue.priorities.has(0)) queue.priorities.set(0, look.at)
      queue.isUsed = true
    },

    /** This process queued jobs: new ones, or ones that were queued before. */
    queued: (jobs: ReadonlyArray<QueuedJob>) => {
      if (orgs.size === 0) return
      for (const job of jobs) {
        const queues = orgs.get(job.orgId)
        for (const queue of [queues?.get(null), queues?.get(job.workflow)]) if (queue !== undefined) add(queue, job)
      }
    },
  }
}

type JobPositions = ReturnType<typeof makeJobPositions>

const all = new WeakMap<SqlClient.SqlClient, JobPositions>()

/** The positions of this process in the queues of a database. */
export const jobPositions = (sql: SqlClient.SqlClient): JobPositions => {
  const known = all.get(sql) ?? makeJobPositions()
  all.set(sql, known)
  return known
}
