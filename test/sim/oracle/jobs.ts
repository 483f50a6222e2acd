import { type Done, type History, succeeded, type Violation } from "../history.ts"

type Row = Readonly<Record<string, unknown>>

const mark = (text: unknown) => /"mark":\s*"([^"]+)"/.exec(String(text))?.[1]

/** What the answered reports say about the end of a job must agree with each other, and with its row. */
const ends = (id: string, row: Row | undefined, reports: ReadonlyArray<Done>): ReadonlyArray<string> => {
  const of = (kind: string) => reports.filter((one) => one.kind === kind && succeeded(one))
  const completed = of("complete")
  const failed = of("fail").filter(({ args }) => args["retry"] !== true)
  const canceled = of("cancelJob")
  const attempts = new Set([...completed, ...failed].map(({ args }) => args["attempt"]))
  const wrong: Array<string> = []
  if (attempts.size > 1) wrong.push(`job ${id} was ended by the attempts ${[...attempts].join(" and ")}`)
  if (canceled.length > 0 && attempts.size > 0) wrong.push(`job ${id} was canceled and ended`)
  if (row === undefined) return wrong
  const { error, finished_attempt: attempt, result, status } = row
  if (canceled.length > 0 && status !== "canceled") wrong.push(`job ${id} was canceled and is ${String(status)}`)
  const [done] = completed
  if (done !== undefined) {
    const wanted = (done.args["result"] as { readonly mark: string }).mark
    if (status !== "completed" || mark(result) !== wanted) {
      wrong.push(`job ${id} was completed with ${wanted} and is ${String(status)} with ${String(mark(result))}`)
    } else if (Number(attempt) !== done.args["attempt"]) wrong.push(`job ${id} was ended by attempt ${String(attempt)}`)
  }
  const [lost] = failed
  if (lost !== undefined && (status !== "failed" || error !== lost.args["error"])) {
    wrong.push(`job ${id} failed with ${String(lost.args["error"])} and is ${String(status)} with ${String(error)}`)
  }
  return wrong
}

/** A job has one event when it has ended, which says the same; else it has none. */
const events = (row: Row, own: ReadonlyArray<Row>): ReadonlyArray<string> => {
  const { id, status } = row
  const isEnded = status === "completed" || status === "failed"
  if (own.length > 1) return [`job ${String(id)} has ${own.length} events`]
  if (!isEnded) return own.length === 0 ? [] : [`job ${String(id)} is ${String(status)} and has an event`]
  if (own.length === 0) return [`job ${String(id)} is ${String(status)} and has no event`]
  const { body, type } = own[0]!
  return type === `job.${String(status)}` &&
    mark(JSON.stringify(JSON.parse(String(body)).result)) === mark(row["result"])
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
export const jobs = ({ done, endAt, rows }: History): ReadonlyArray<Violation> => {
  const deleted = new Set(done.filter(({ kind }) => kind === "deleteOrg").map(({ tenant }) => tenant))
  const stored = new Map(rows["jobs"]!.map((row) => [row["id"] as string, row]))
  const reports = Map.groupBy(
    done.filter(({ args }) => args["jobId"] !== undefined),
    ({ args }) => args["jobId"] as string,
  )
  const eventsOf = Map.groupBy(
    rows["events"]!.filter((row) => row["job_id"] !== null),
    (row) => row["job_id"] as string,
  )
  const lost = done.flatMap((one) => {
    const isLost =
      one.kind === "createJob" && succeeded(one) && !deleted.has(one.tenant) && !stored.has(one.body.job_id)
    return isLost ? [`job ${String(one.body.job_id)} was created and is not stored`] : []
  })
  const wrong = [
    ...lost,
    ...[...reports].flatMap(([id, own]) => (deleted.has(own[0]!.tenant) ? [] : ends(id, stored.get(id), own))),
    ...[...stored].flatMap(([id, row]) => [
      ...events(row, eventsOf.get(id) ?? []),
      ...(Number(row["attempt"]) > Number(row["max_attempts"])
        ? [`job ${id} has had ${String(row["attempt"])} attempts`]
        : []),
    ]),
  ]
  return [...claims(done), ...wrong.map((what) => ({ oracle: "jobs", at: endAt, what }))]
}
