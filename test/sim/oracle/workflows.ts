import {
  type Done,
  hasStepped,
  type History,
  isTouched,
  lamingKinds,
  succeeded,
  type Try,
  type Violation,
} from "../history.ts"

/** How much the clocks of replicas differ at most that have not stepped. */
const skewMillis = 4_000
/** How long after its time a job that nobody has claimed may wait for a sweep. */
const sweepMillis = 60_000
/** How long nobody else has claimed a job of a workflow when it counts as free. */
const leaseMillis = 12_000

/** What a client has set for a workflow. */
interface Limits {
  readonly concurrency?: number
  readonly concurrency_per_key?: number
  readonly rate?: { readonly limit: number; readonly window_seconds: number }
  readonly retry?: { readonly attempts: number }
  readonly expires_in_seconds?: number
}

/** A job, as a client made it. */
interface Made {
  readonly id: string
  readonly by: Done
  readonly key: string | undefined
  readonly expiresSeconds: number | undefined
}

/** An attempt of a job, and the time in which it ran in any case. */
interface Run {
  readonly job: Made
  readonly attempt: number
  readonly each: Try
  readonly from: number
  readonly to: number
}

const jobsOf = (workflow: string, limits: Limits, done: ReadonlyArray<Done>): ReadonlyArray<Made> =>
  done
    .filter((one) => one.kind === "createJobs" && one.args["workflow"] === workflow && succeeded(one))
    .flatMap((by) => {
      const fields = by.args["fields"] as ReadonlyArray<{ concurrency_key?: string; expires_in_seconds?: number }>
      return by.body.job_ids!.map((id, n): Made => {
        const { concurrency_key: key, expires_in_seconds: own } = fields[n]!
        return { id, by, key, expiresSeconds: own ?? limits.expires_in_seconds }
      })
    })

const ends = new Set(["complete", "fail", "cancelJob"])

/** The attempts of jobs that workers got, whoever claimed them. */
const runsOf = (jobs: ReadonlyArray<Made>, { done }: History): ReadonlyArray<Run> => {
  const byId = new Map(jobs.map((job) => [job.id, job]))
  return done.flatMap((claim) => {
    if (claim.kind !== "claim" || !succeeded(claim)) return []
    const each = claim.tries.at(-1)!
    return claim.body.jobs!.flatMap(({ attempt, job_id: id }): ReadonlyArray<Run> => {
      const job = byId.get(id)
      if (job === undefined) return []
      // It ran until it was reported, or until its first lease ended by a clock that is ahead.
      const reported = done
        .filter(({ args, kind, start }) => ends.has(kind) && args["jobId"] === id && start > each.start)
        .map(({ start }) => start)
      const lease = each.start + Number(claim.args["leaseSeconds"]) * 1_000 - skewMillis
      return [{ job, attempt, each, from: each.end, to: Math.min(lease, ...reported) }]
    })
  })
}

/** The most that ran at the same time in any case. */
const most = (runs: ReadonlyArray<Run>) =>
  runs.reduce(
    (found, { each, from }) => {
      const count = runs.filter((other) => other.from <= from && other.to > from).length
      return count > found.count ? { count, at: each.end } : found
    },
    { count: 0, at: 0 },
  )

/** Never more jobs of a workflow, or of one of its keys, run than its limits say, over all replicas. */
const concurrent = (
  workflow: string,
  { concurrency, concurrency_per_key: perKey }: Limits,
  runs: ReadonlyArray<Run>,
) => {
  const check = (name: string, limit: number | undefined, some: ReadonlyArray<Run>) => {
    const { at, count } = most(some)
    if (limit === undefined || count <= limit) return []
    return [{ oracle: "workflows", at, what: `${count} jobs of ${name} ran at once, with a limit of ${limit}` }]
  }
  const byKey = [...Map.groupBy(runs, ({ job }) => job.key)]
  return [
    ...check(workflow, concurrency, runs),
    ...byKey.flatMap(([key, own]) => (key === undefined ? [] : check(`${workflow} with ${key}`, perKey, own))),
  ]
}

/** In no window do claims start more jobs than the rate says. */
const started = (workflow: string, { rate }: Limits, runs: ReadonlyArray<Run>, { faults }: History) => {
  if (rate === undefined || faults.some(({ kind }) => kind === "database clock step")) return []
  const millis = rate.window_seconds * 1_000
  return runs.flatMap(({ each: first }) => {
    const within = runs.filter(({ each }) => each.start >= first.start && each.end <= first.start + millis)
    if (within.length <= rate.limit) return []
    const what = `${within.length} jobs of ${workflow} began in ${rate.window_seconds} s, with a rate of ${rate.limit}`
    return [{ oracle: "workflows", at: within.at(-1)!.each.end, what }]
  })
}

/** No job waits forever: claims that wait get nothing only when no job is left. */
const stuck = (workflow: string, jobs: ReadonlyArray<Made>, runs: ReadonlyArray<Run>, history: History) => {
  const { done, rows } = history
  const last = done.filter(({ args, kind }) => kind === "claim" && args["workflow"] === workflow).slice(-3)
  const isSure =
    last.length === 3 &&
    last.every(
      (one) =>
        one.status === 200 &&
        one.body.jobs!.length === 0 &&
        one.tries.every(({ end, replica, start }) => !isTouched(history, lamingKinds, replica, start - 10_000, end)),
    ) &&
    runs.every(({ each }) => each.start < last[1]!.start - leaseMillis)
  if (!isSure || hasStepped(history, Infinity)) return []
  const delayed = new Set(done.flatMap(({ args, kind }) => (kind === "fail" ? [args["jobId"]] : [])))
  const waits = rows["jobs"]!.find(
    ({ id, status }) => status === "queued" && !delayed.has(id) && jobs.some((job) => job.id === id),
  )
  if (waits === undefined) return []
  return [{ oracle: "workflows", at: last[2]!.end, what: `job ${String(waits["id"])} of ${workflow} waits forever` }]
}

/** Jobs are tried as often as their workflow says, and one that nobody claims in time fails. */
const policies = (
  workflow: string,
  limits: Limits,
  jobs: ReadonlyArray<Made>,
  runs: ReadonlyArray<Run>,
  history: History,
) => {
  const { done, endAt, rows } = history
  const says = (what: string, at: number) => ({ oracle: "workflows", at, what })
  const retried = new Set(done.filter(({ kind }) => kind === "retryJob").map(({ args }) => args["jobId"]))
  const isDeleted = done.some(({ args, kind }) => kind === "deleteWorkflow" && args["workflow"] === workflow)
  const attempts = isDeleted ? Infinity : (limits.retry?.attempts ?? Infinity)
  const often = runs
    .filter(({ attempt, job }) => attempt > attempts && !retried.has(job.id))
    .map(({ attempt, each, job }) => says(`job ${job.id} got attempt ${attempt} of ${attempts}`, each.end))
  if (hasStepped(history, Infinity)) return often
  const late = runs.flatMap(({ attempt, each, job: { by, expiresSeconds = Infinity, id } }) =>
    attempt === 1 && !retried.has(id) && each.start > by.end + expiresSeconds * 1_000 + skewMillis
      ? [says(`job ${id} was claimed after its time`, each.end)]
      : [],
  )
  const stored = new Map(rows["jobs"]!.map((row) => [row["id"], row]))
  const left = jobs.flatMap(({ by, expiresSeconds = Infinity, id }) => {
    const row = stored.get(id)
    const isLeft = row?.["status"] === "queued" && Number(row["attempt"]) === 0 && !retried.has(id)
    return isLeft && endAt > by.end + expiresSeconds * 1_000 + sweepMillis
      ? [says(`job ${id} waits after its time`, endAt)]
      : []
  })
  return [...often, ...late, ...left]
}

/** The limits and policies of workflows hold over all replicas, whatever happens to them. */
export const workflows = (history: History): ReadonlyArray<Violation> =>
  history.done
    .filter((one) => one.kind === "setWorkflow" && succeeded(one))
    .flatMap(({ args }) => {
      const [workflow, limits] = [args["workflow"] as string, args["limits"] as Limits]
      const jobs = jobsOf(workflow, limits, history.done)
      const runs = runsOf(jobs, history)
      // A clock that steps ends leases at any time.
      const sure = runs.filter(({ from, to }) => from < to && !hasStepped(history, to))
      return [
        ...concurrent(workflow, limits, sure),
        ...started(workflow, limits, runs, history),
        ...stuck(workflow, jobs, runs, history),
        ...policies(workflow, limits, jobs, runs, history),
      ]
    })
