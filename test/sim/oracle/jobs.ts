import { type Done, hasStepped, type History, isUncertain, succeeded, type Try, type Violation } from "../history.ts"
import { batches, inputs, kept, otherKeys, turns, uniques } from "./jobContents.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

type Row = Readonly<Record<string, unknown>>

const mark = (text: unknown) => /"mark":\s*"([^"]+)"/.exec(String(text))?.[1]

/** What the answered reports say about the end of a job must agree with each other, and with its row. */
const ends = (id: string, row: Row | undefined, reports: ReadonlyArray<Done>): ReadonlyArray<string> => {
  const of = (kind: string) => reports.filter((one) => one.kind === kind && succeeded(one))
  const completed = of("complete")
  const failed = of("fail").filter(({ args }) => args["retry"] !== true)
  const canceled = of("cancelJob")
  // A report without an attempt is one of any.
  const attempts = new Set(
    [...completed, ...failed].map(({ args }) => args["attempt"]).filter((attempt) => attempt !== undefined),
  )
  const wrong: Array<string> = []
  if (attempts.size > 1) wrong.push(`job ${id} was ended by the attempts ${[...attempts].join(" and ")}`)
  if (canceled.length > 0 && attempts.size > 0) wrong.push(`job ${id} was canceled and ended`)
  if (row === undefined) return wrong
  const { finished_attempt: attempt, status } = row
  const says = (kind: string) => wrong.push(`job ${id} was ${kind} and is ${String(status)}`)
  if (canceled.length > 0 && status !== "canceled") says("canceled")
  if (completed.length > 0 && status !== "completed") says("completed")
  if (failed.length > 0 && status !== "failed") says("failed")
  if (completed.length > 0 && attempts.size === 1 && !attempts.has(Number(attempt)))
    wrong.push(`job ${id} was ended by attempt ${String(attempt)}`)
  return wrong
}

/**
 * The state of a job, its last attempt, the attempts that gave it back (bit n for attempt n), and what ended it: its
 * result or error.
 */
type State = `${"queued" | "running" | "completed" | "failed" | "canceled"} ${number} ${number} ${string}`

const parts = (state: State) => {
  const [status, attempt, released, by] = state.split(" ") as [string, string, string, string]
  return { status, attempt: Number(attempt), released: Number(released), by }
}

/** The states after a report is answered with success. Leases run out unseen, and claims whose answers were lost. */
const taken = ({ args, body, kind }: Done) => {
  const asked = args["attempt"] as number | undefined
  return (state: State): ReadonlyArray<State> => {
    const { attempt, released, status } = parts(state)
    const isOpen = status === "queued" || status === "running"
    // Without an attempt, a report is one of the last attempt, also of a job that waits.
    const n = asked ?? attempt
    const isOwn = attempt === n && (status === "running" || (asked === undefined && status === "queued"))
    // It ends a job that waits, too, as one of no attempt; a lease may have run out unseen.
    const by = asked === undefined ? [n, 0] : [n]
    const failed = by.map((one): State => `failed ${one} ${released} ${String(args["error"])}`)
    // The last lease may have run out unseen; without an attempt, a failure again changes nothing.
    if (asked === undefined) failed.push(`failed ${n} ${released} -`)
    switch (kind) {
      case "heartbeat":
      case "log":
      case "step":
        // Not of a job that waits, also without an attempt.
        return status === "running" && attempt === n ? [state] : []
      case "getJob":
        if (status === body?.status) return [state]
        // A lease may have run out unseen, and a claim may have been answered to nobody.
        if (body?.status === "failed") return isOpen ? [`failed ${attempt} ${released} -`] : []
        return isOpen && (body?.status === "queued" || body?.status === "running") ? [state] : []
      case "retryJob":
        // A lease may have run out unseen, and was the last.
        return isOpen || status === "failed" ? [`queued ${attempt} ${released} -`] : []
      case "complete": {
        const { mark } = args["result"] as { readonly mark: string }
        if (isOwn) return by.map((one): State => `completed ${one} ${released} ${mark}`)
        return status === "completed" && attempt === n ? [state] : []
      }
      case "fail":
        if (status === "failed" && attempt === n) return [state]
        if (args["retry"] !== true) return isOwn ? failed : []
        if (asked === undefined && status === "queued") return n > 0 ? [state] : failed
        // A lease may have run out unseen; then one without an attempt found the job waiting, and changed nothing.
        if (isOwn && asked === undefined && n > 0) failed.push(`queued ${n} ${released} -`)
        if (isOwn) return [`queued ${n} ${released | (1 << n)} -`, ...failed]
        return asked !== undefined && (released & (1 << n)) > 0 ? [state] : []
      case "cancelJob":
        return isOpen ? [`canceled ${attempt} ${released} -`] : status === "canceled" ? [state] : []
      default:
        return []
    }
  }
}

/** The states after a report is refused. */
const refused =
  (one: Done) =>
  (state: State): ReadonlyArray<State> => {
    const { attempt, released, status } = parts(state)
    // A retry is refused, too, while another job has the unique key.
    if (one.kind === "retryJob") return status === "failed" && one.args["isUnique"] !== true ? [] : [state]
    // A lease may have run out unseen.
    const expired: ReadonlyArray<State> = [`queued ${attempt} ${released} -`, `failed ${attempt} ${released} -`]
    if (status === "running") return attempt === (one.args["attempt"] ?? attempt) ? expired : [state]
    // A claim whose answer was lost may have run out, too, and was the last.
    const isEnd = one.kind === "complete" || one.kind === "fail"
    if (status === "queued" && one.args["attempt"] === undefined && isEnd) return [`failed ${attempt} ${released} -`]
    return taken(one)(state).length > 0 && one.kind !== "cancelJob" && status !== "failed" ? [] : [state]
  }

const claimed =
  (n: number) =>
  (state: State): ReadonlyArray<State> => {
    const { attempt, released, status } = parts(state)
    const isOpen = status === "queued" || status === "running"
    return isOpen && attempt < n ? [`running ${n} ${released} -`] : []
  }

/** The states after a retry or a cancellation by a filter has reached the job. */
const swept =
  (kind: string) =>
  (state: State): ReadonlyArray<State> => {
    const { attempt, released, status } = parts(state)
    const isOpen = status === "queued" || status === "running"
    if (kind === "retryJobs") return status === "failed" ? [`queued ${attempt} ${released} -`] : [state]
    // A lease may have run out unseen, and was the last.
    return isOpen ? [`canceled ${attempt} ${released} -`, `failed ${attempt} ${released} -`] : [state]
  }

/**
 * A sweep over the jobs of a workflow, for a job that was made at a time. It reaches what it selects after its answer;
 * what it selects without `until` depends on clocks.
 */
const stepsOfSweep = (
  { args, body, kind, start, tries }: Done,
  madeAt: number,
  endAt: number,
  ends: ReadonlyArray<Done>,
): Array<Step<State>> => {
  const after = swept(kind)
  const steps = tries.filter(isUncertain).map((each): Step<State> => ({ from: each.start, to: Infinity, after }))
  const last = tries.at(-1)
  if (last?.status !== 200) return steps
  const isSure = args["until"] !== undefined && madeAt < start
  if (!isSure) return [...steps, { from: last.start, to: Infinity, after }]
  // Without a sweep there was nothing to change, also because a lease had run out unseen.
  const unchanged = (state: State) => after(state).filter((next) => next === state || parts(next).status === "failed")
  if (body.sweep_id === null) return [...steps, { from: last.start, to: last.end, after: unchanged }]
  // Somebody ends it: it has reached the job until then, or never does.
  const end = ends.find((one) => one.args["sweepId"] === body.sweep_id && (one.status !== 404 || one.tries.length > 1))
  const either = (state: State) => [...after(state), state]
  if (end !== undefined)
    return [...steps, { from: last.start, to: succeeded(end) ? end.tries.at(-1)!.end : endAt, after: either }]
  return [...steps, { from: last.start, to: endAt, after }]
}

/** Whether a job may end in a state with this row. A lease may have run out unseen. */
const fits =
  ({ error, result, status: last }: Row) =>
  (state: State): ReadonlyArray<State> => {
    const { by, status } = parts(state)
    const isOpen = status === "queued" || status === "running"
    if (isOpen && (last === "queued" || last === "running" || last === "failed")) return [state]
    if (status !== last) return []
    const said = last === "completed" ? mark(result) : last === "failed" ? String(error) : by
    return said === by || by === "-" ? [state] : []
  }

/** An attempt of a job that a worker has got. */
interface Claimed {
  readonly id: string
  readonly attempt: number
  readonly leaseMillis: number
  readonly each: Try
}

/** What changes no state of a job. */
const isRead: ReadonlySet<string> = new Set(["heartbeat", "log", "step"])

/** What was answered about a job, and its row at the end, have an order that explains them. */
const order = (
  id: string,
  row: Row | undefined,
  reports: ReadonlyArray<Done>,
  claims: ReadonlyArray<Claimed>,
  sweeps: ReadonlyArray<Step<State>>,
  endAt: number,
): ReadonlyArray<string> => {
  const steps: Array<Step<State>> = claims.map(({ attempt, each: { end, start } }) => ({
    from: start,
    to: end,
    after: claimed(attempt),
  }))
  steps.push(...sweeps)
  for (const one of reports) {
    for (const each of one.tries) {
      const { end, start, status } = each
      if (isUncertain(each)) {
        if (one.kind !== "getJob") steps.push({ from: start, to: Infinity, after: taken(one) })
      } else if (status! < 300) steps.push({ from: start, to: end, after: taken(one), isRead: isRead.has(one.kind) })
      else if (status === 409) steps.push({ from: start, to: end, after: refused(one) })
    }
  }
  if (row !== undefined) steps.push({ from: endAt, to: endAt, after: fits(row) })
  return isLinearizable(steps, ["queued 0 0 -"]) ? [] : [`no order explains what was answered about job ${id}`]
}

/** What a worker reports that keeps the job. */
const keeps: ReadonlySet<string> = new Set(["heartbeat", "log", "step", "getJob"])

/** How much the clocks of replicas differ at most that have not stepped, with what an answer takes. */
const maxSkewMillis = 4_000

/** A worker within its lease is not refused, unless the job was canceled or it has reported before. */
const early = (
  id: string,
  reports: ReadonlyArray<Done>,
  claims: ReadonlyArray<Claimed>,
  history: History,
): ReadonlyArray<string> => {
  if (hasStepped(history, Infinity) || reports.some(({ kind }) => kind === "cancelJob" || kind === "cancelJobs"))
    return []
  return reports.flatMap((one) => {
    const { attempt } = one.args
    const claim = claims.find((other) => other.attempt === attempt)
    const others = reports.filter((other) => other !== one && (other.args["attempt"] ?? attempt) === attempt)
    const isFirst = one.tries.length === 1 && others.every(({ kind }) => keeps.has(kind))
    if (one.status !== 409 || claim === undefined || !isFirst) return []
    // A heartbeat that was answered before extends the lease.
    const leases = others
      .filter((other) => succeeded(other) && other.end < one.start)
      .map(({ args, start }) => start + Number(args["leaseSeconds"] ?? 0) * 1000)
    if (one.end > Math.max(claim.each.start + claim.leaseMillis, ...leases) - maxSkewMillis) return []
    return [`the worker with attempt ${String(attempt)} of job ${id} was refused within its lease`]
  })
}

/** A job has one event when it has ended, which says the same; else it has none. Each retry keeps the one before. */
const events = (row: Row, own: ReadonlyArray<Row>, retries: number): ReadonlyArray<string> => {
  const { id, status } = row
  const isEnded = status === "completed" || status === "failed"
  if (own.length > 1 + retries) return [`job ${String(id)} has ${own.length} events`]
  if (!isEnded && retries > 0) return []
  if (!isEnded) return own.length === 0 ? [] : [`job ${String(id)} is ${String(status)} and has an event`]
  if (own.length === 0) return [`job ${String(id)} is ${String(status)} and has no event`]
  // The end of a job has the id of its event.
  const last = own.find((event) => event["id"] === row["end_id"])
  return last?.["type"] === `job.${String(status)}` &&
    mark(JSON.stringify(JSON.parse(String(last["body"])).result)) === mark(row["result"])
    ? []
    : [`job ${String(id)} is ${String(status)}, and its event says otherwise`]
}

/** No attempt of a job is given to two workers. */
const claims = (done: ReadonlyArray<Done>): ReadonlyArray<Violation> => {
  const given = new Map<string, Done>()
  return done
    .filter((one) => one.kind === "claim" && succeeded(one))
    .flatMap((one) =>
      one.body.jobs!.flatMap(({ attempt, job_id }) => {
        const key = `${job_id} ${attempt}`
        if (!given.has(key)) {
          given.set(key, one)
          return []
        }
        return [{ oracle: "jobs", at: one.end, what: `two workers have attempt ${attempt} of job ${job_id}` }]
      }),
    )
}

/** Nothing that was answered about a job is lost, and a late worker changes nothing. */
export const jobs = (history: History): ReadonlyArray<Violation> => {
  const { done, endAt, rows } = history
  const deleted = new Set(done.filter(({ kind }) => kind === "deleteOrg").map(({ tenant }) => tenant))
  const stored = new Map(rows["jobs"]!.map((row) => [row["id"] as string, row]))
  const reports = Map.groupBy(
    done.filter(({ args }) => args["jobId"] !== undefined),
    ({ args }) => args["jobId"] as string,
  )
  const claimsOf = Map.groupBy(
    done
      .filter((one) => one.kind === "claim" && succeeded(one))
      .flatMap((one) =>
        one.body.jobs!.map(({ attempt, job_id: id }): Claimed => {
          const leaseMillis = Number(one.args["leaseSeconds"]) * 1000
          return { id, attempt, leaseMillis, each: one.tries.at(-1)! }
        }),
      ),
    ({ id }) => id,
  )
  const eventsOf = Map.groupBy(
    rows["events"]!.filter((row) => row["job_id"] !== null),
    (row) => row["job_id"] as string,
  )
  const lost = done.flatMap((one) => {
    if (!/^(create|runSchedule)/.test(one.kind) || !succeeded(one) || deleted.has(one.tenant)) return []
    return (one.body.job_ids ?? [one.body.job_id])
      .filter((id) => id !== undefined && !stored.has(id))
      .map((id) => `job ${id} was created and is not stored`)
  })
  const madeAt = new Map(
    done
      .filter((one) => one.kind.startsWith("createJob") && succeeded(one))
      .flatMap(({ body, end }) => (body.job_ids ?? [body.job_id]).map((id) => [id, end] as const)),
  )
  const ended = done.filter(({ kind }) => kind === "endSweep")
  const filtered = done.filter(({ kind }) => kind === "retryJobs" || kind === "cancelJobs")
  const sweepsOf = ({ workflow }: Row) => filtered.filter(({ args }) => args["workflow"] === workflow)
  const mayRetry = (one: Done) =>
    (one.kind === "retryJob" || one.kind === "retryJobs") && (succeeded(one) || one.tries.some(isUncertain))
  const retriesOf = (id: string, row: Row | undefined) =>
    [...(reports.get(id) ?? []), ...(row === undefined ? [] : sweepsOf(row))]
      .filter(mayRetry)
      .reduce((sum, { tries }) => sum + tries.length, 0)
  const wrong = [
    ...lost,
    ...[...reports].flatMap(([id, own]) => {
      if (deleted.has(own[0]!.tenant)) return []
      const row = stored.get(id)
      const claims = claimsOf.get(id) ?? []
      const sweeps = row === undefined ? [] : sweepsOf(row)
      const steps = sweeps.flatMap((one) => stepsOfSweep(one, madeAt.get(id) ?? Infinity, endAt, ended))
      return [
        ...(retriesOf(id, row) > 0 ? [] : ends(id, row, own)),
        ...order(id, row, own, claims, steps, endAt),
        ...early(id, [...own, ...sweeps], claims, history),
      ]
    }),
    ...[...stored].flatMap(([id, row]) => [
      ...events(row, eventsOf.get(id) ?? [], retriesOf(id, row)),
      ...(Number(row["attempt"]) > Number(row["max_attempts"])
        ? [`job ${id} has had ${String(row["attempt"])} attempts`]
        : []),
    ]),
  ]
  const all = [
    ...wrong,
    ...batches(history, deleted),
    ...inputs(done),
    ...kept(done, stored),
    ...uniques(history),
    ...otherKeys(history),
    ...turns(history),
  ]
  return [...claims(done), ...all.map((what) => ({ oracle: "jobs", at: endAt, what }))]
}
