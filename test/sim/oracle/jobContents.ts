import { type Done, hasStepped, type History, isUncertain, succeeded } from "../history.ts"

type Row = Readonly<Record<string, unknown>>

/** How much the clocks of replicas differ at most that have not stepped. */
const skewMillis = 4_000

const mayHaveRun = (one: Done) => succeeded(one) || one.tries.some(isUncertain)
const markOf = ({ input }: Row) => /"mark":\s*"([^"]+)"/.exec(String(input))?.[1]

/** The jobs of a batch are made all or not at all, and a key has one job. */
export const batches = ({ done, removed, rows }: History, deleted: ReadonlySet<string>): ReadonlyArray<string> => {
  const stored = new Set(rows["jobs"]!.map(markOf))
  const gone = new Set(removed.map(({ row }) => row["id"]))
  const ofKey = new Map<string, Set<string>>()
  const wrong: Array<string> = []
  for (const { args, body, kind, status, tenant } of done) {
    if (kind !== "createJobs" || deleted.has(tenant)) continue
    const marks = args["marks"] as ReadonlyArray<string>
    const keys = args["keys"] as ReadonlyArray<string | null>
    const fresh = marks.filter((_, n) => keys[n] === null)
    const made = fresh.filter((mark) => stored.has(mark)).length
    if (made > 0 && made < fresh.length)
      wrong.push(`${made} of ${fresh.length} jobs of a batch are stored: ${fresh[0]!}`)
    if (status !== 200) continue
    for (const [n, key] of keys.entries())
      if (key !== null) ofKey.set(key, (ofKey.get(key) ?? new Set()).add(body.job_ids![n]!))
  }
  for (const [key, ids] of ofKey)
    if (ids.size > 1 && ![...ids].some((id) => gone.has(id))) wrong.push(`the key ${key} has ${ids.size} jobs`)
  return wrong
}

/** What was asked for as the input of a job, by the id that was answered. */
const marksOf = (done: ReadonlyArray<Done>) => {
  const marks = new Map<string, Array<Done>>()
  for (const one of done) {
    const { args, body, kind } = one
    if (!succeeded(one) || (kind !== "createJob" && kind !== "createJobs" && kind !== "createUnique")) continue
    const all = (args["marks"] ?? [args["mark"]]) as ReadonlyArray<string | undefined>
    for (const [n, id] of (body.job_ids ?? [body.job_id]).entries()) {
      if (all[n] === undefined) continue
      marks.set(id, [...(marks.get(id) ?? []), { ...one, args: { ...args, mark: all[n] } }])
    }
  }
  return marks
}

/** A worker gets the input of the job: of a debounced one the last before its claim, and not before its time. */
export const inputs = (done: ReadonlyArray<Done>): ReadonlyArray<string> => {
  const marks = marksOf(done)
  return done.flatMap((claim) => {
    if (claim.kind !== "claim" || !succeeded(claim)) return []
    const { end, start } = claim.tries.at(-1)!
    return claim.body.jobs!.flatMap(({ input, job_id: id }): ReadonlyArray<string> => {
      const asked = marks.get(id)
      const mark = input?.mark
      if (asked === undefined) return []
      const sent = asked.find(({ args }) => args["mark"] === mark)
      const isUnique = asked[0]!.kind === "createUnique"
      // Whoever made a unique job may have got no answer.
      if (sent === undefined) return isUnique ? [] : [`a worker got ${String(mark)} as the input of job ${id}`]
      const isReplaced = (by: Done) => by.start > sent.end && by.end < start
      if (asked[0]!.args["debounce_seconds"] === undefined || sent.start > end || !asked.some(isReplaced)) return []
      return [`a worker got ${String(mark)} as the input of job ${id}, which was replaced before`]
    })
  })
}

/**
 * The lines and the results of steps that a worker has stored stay; of a step the first one. A newer input of a
 * debounced job takes the steps of the one before away.
 */
export const kept = (done: ReadonlyArray<Done>, stored: ReadonlyMap<string, Row>): ReadonlyArray<string> =>
  [...Map.groupBy(done, ({ args }) => args["jobId"] as string)].flatMap(([id, own]) => {
    const row = stored.get(id)
    if (row === undefined) return []
    const lines = String(row["lines"] ?? "")
    const lost = own.filter(
      (one) => one.kind === "log" && succeeded(one) && !lines.includes(`"${String(one.args["mark"])}"`),
    )
    const { mark } = (JSON.parse(String(row["input"])) ?? {}) as { readonly mark?: unknown }
    const newest = done.find(({ args }) => args["mark"] === mark && args["debounce_seconds"] !== undefined)
    const steps = own.filter(
      (one) => one.kind === "step" && mayHaveRun(one) && (newest === undefined || newest.end < one.start),
    )
    const names = new Map<string, Array<string>>()
    for (const line of String(row["steps"] ?? "")
      .split("\n")
      .filter((text) => text !== "")) {
      const { name, result } = JSON.parse(line) as { readonly name: string; readonly result: { readonly mark: string } }
      names.set(name, [...(names.get(name) ?? []), result.mark])
    }
    const wrong = steps.flatMap((one): ReadonlyArray<string> => {
      const results = names.get(one.args["step"] as string) ?? []
      if (!succeeded(one)) return []
      const first = steps.find(({ args }) => args["mark"] === results[0])
      if (results.length !== 1) return [`job ${id} has ${results.length} results of a step`]
      return first !== undefined && first.start <= one.end
        ? []
        : [`job ${id} has another result of a step than the first`]
    })
    return [...lost.map(({ args }) => `job ${id} has lost the line ${String(args["mark"])}`), ...wrong]
  })

/** When a unique job may have let another one in at the earliest: it was claimed, if it waits, or has ended. */
const openUntil = (id: string, isDebounced: boolean, done: ReadonlyArray<Done>, row: Row | undefined) => {
  const ends = new Set(["complete", "fail", "cancelJob"])
  const times = done.flatMap((one): ReadonlyArray<number> => {
    if (ends.has(one.kind) && one.args["jobId"] === id) return [one.start]
    // A claim whose answer was lost may have been any job's.
    const mayClaim =
      one.kind === "claim" && (one.body?.jobs?.some((job) => job.job_id === id) || one.tries.some(isUncertain))
    return isDebounced && mayClaim === true ? [one.start] : []
  })
  // Leases ran out, and the last of them ended it.
  if (row?.["error"] === "lease expired") return -Infinity
  return Math.min(Infinity, ...times)
}

/** A unique key has one unfinished job; a debounced one is not claimed before its time. */
export const uniques = (history: History): ReadonlyArray<string> => {
  const { done, rows } = history
  const groups = Map.groupBy(
    done.filter((one) => one.kind === "createUnique" && succeeded(one)),
    ({ args }) => args["workflow"] as string,
  )
  return [...groups].flatMap(([workflow, own]) => {
    const seconds = own[0]!.args["debounce_seconds"] as number | undefined
    const all = done.filter(({ tenant }) => tenant === own[0]!.tenant)
    const retried = new Set(all.filter(({ kind }) => kind === "retryJob").map(({ args }) => args["jobId"]))
    const open = rows["jobs"]!.filter(
      (row) =>
        row["workflow"] === workflow &&
        (row["status"] === "queued" || (row["status"] === "running" && seconds === undefined)) &&
        // A debounced job that was claimed is none that waits.
        (seconds === undefined || Number(row["attempt"]) === 0),
    )
    const wrong = open.length > 1 ? [`${workflow} has ${open.length} unfinished jobs of one key`] : []
    const stored = new Map(rows["jobs"]!.map((row) => [row["id"], row]))
    const until = new Map(
      own.map(({ body: { job_id: id } }) => [id, openUntil(id, seconds !== undefined, all, stored.get(id))]),
    )
    for (const one of own) {
      const { body, end, start } = one
      const other = own.find(
        (before) => before.body.job_id !== body.job_id && before.end < start && until.get(before.body.job_id)! > end,
      )
      if (body.created === true && other !== undefined)
        wrong.push(`${workflow} got a second job while ${other.body.job_id} was open`)
      const isOver = all.some(
        (report) =>
          report.args["jobId"] === body.job_id &&
          (report.kind === "complete" || (report.kind === "fail" && report.args["retry"] === false)) &&
          succeeded(report) &&
          report.end < start,
      )
      if (body.created === false && isOver && !retried.has(body.job_id))
        wrong.push(`${workflow} got job ${body.job_id}, which had ended`)
    }
    if (seconds === undefined || hasStepped(history, Infinity)) return wrong
    const early = all.filter((claim) => {
      if (claim.kind !== "claim" || !succeeded(claim)) return false
      return claim.body.jobs!.some(({ attempt, job_id: id }) =>
        own.some(
          (one) =>
            one.body.job_id === id &&
            attempt === 1 &&
            one.end < claim.tries.at(-1)!.start &&
            claim.end < one.start + seconds * 1_000 - skewMillis,
        ),
      )
    })
    return [...wrong, ...early.map(() => `${workflow} was claimed before its time`)]
  })
}

/** A key keeps others out for a time after the creation of its newest job, and lets another one in afterwards. */
const within = ({ done, rows }: History, own: ReadonlyArray<Done>): ReadonlyArray<string> => {
  const { seconds, workflow } = own[0]!.args as { readonly seconds: number; readonly workflow: string }
  const made = own.filter(({ body }) => body.created === true)
  const isOver = (id: string, madeAt: number, before: number) =>
    done.some((one) => one.kind === "complete" && succeeded(one) && one.args["jobId"] === id && one.end < before) ||
    rows["jobs"]!.some((row) => {
      const lived = Number(row["finished"]) - Number(row["created"])
      return row["id"] === id && row["error"] === "lease expired" && madeAt + lived + skewMillis < before
    })
  return own.flatMap(({ body, end, start }): ReadonlyArray<string> => {
    if (body.created === true) {
      const isEarly = made.some((one) => one.end < start && end < one.start + seconds * 1_000 - skewMillis)
      return isEarly ? [`${workflow} got a second job within ${seconds} s`] : []
    }
    // Whoever made the job may have got no answer.
    const maker = made.find((one) => one.body.job_id === body.job_id)
    const isLate = maker !== undefined && start > maker.end + seconds * 1_000 + skewMillis
    return isLate && isOver(body.job_id, maker.end, start) ? [`${workflow} got no second job after ${seconds} s`] : []
  })
}

/** What clients asked for with a key of other kinds than `uniques` looks at. */
export const otherKeys = (history: History): ReadonlyArray<string> => {
  const { done, rows } = history
  const ofWorkflow = (kind: string) =>
    Map.groupBy(
      done.filter((one) => one.kind === kind && succeeded(one)),
      ({ args }) => args["workflow"] as string,
    )
  const wrong = hasStepped(history, Infinity)
    ? []
    : [...ofWorkflow("createWithin").values()].flatMap((own) => within(history, own))
  for (const workflow of ofWorkflow("createQueued").keys()) {
    const waiting = rows["jobs"]!.filter((row) => row["workflow"] === workflow && row["status"] === "queued")
    if (waiting.length > 1) wrong.push(`${workflow} has ${waiting.length} jobs of one key that wait`)
  }
  return wrong
}

/** One worker after the other gets the most urgent job, and of equal ones the oldest. */
export const turns = ({ done, rows }: History): ReadonlyArray<string> => {
  const batches = done.filter(({ args, kind }) => kind === "createJobs" && String(args["workflow"]).includes("-turn"))
  const stored = new Map(rows["jobs"]!.map((row) => [row["id"] as string, row]))
  return batches.flatMap((batch): ReadonlyArray<string> => {
    const workflow = batch.args["workflow"] as string
    const claims = done.filter((one) => one.kind === "claim" && one.args["workflow"] === workflow)
    // A claim without an answer may have had any job.
    if (!succeeded(batch) || [batch, ...claims].some(({ tries }) => tries.some(isUncertain))) return []
    const fields = batch.args["fields"] as ReadonlyArray<{ readonly priority: number }>
    const ids = batch.body.job_ids!
    const order = ids.toSorted((one, other) => {
      const [first, second] = [one, other].map((id) => fields[ids.indexOf(id)]!.priority)
      return second! - first! || ids.indexOf(one) - ids.indexOf(other)
    })
    const claimed = claims.toSorted((one, other) => one.start - other.start).flatMap(({ body }) => body.jobs ?? [])
    if (claimed.some(({ attempt, job_id: id }) => attempt !== 1 || !stored.has(id))) return []
    // Workers of all workflows take some of them meanwhile.
    const places = claimed.map(({ job_id: id }) => order.indexOf(id))
    const isInTurn = places.every((place, n) => n === 0 || places[n - 1]! < place)
    return isInTurn ? [] : [`${workflow} was claimed out of turn`]
  })
}
