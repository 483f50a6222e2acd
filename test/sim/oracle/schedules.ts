import { type Done, hasStepped, type History, isUncertain, succeeded, type Violation } from "../history.ts"

import { epochMillis } from "../world.ts"

type Row = History["rows"][string][number]

const minute = 60_000
/** How far the clocks of replicas and of the database may be from the true time, with the time of a search. */
const slackMillis = minute + 100_000

/** How long after its time a job is made, and how far the clocks are off while none has stepped. */
const promptMillis = 20_000
const skewMillis = 3_000

/** Finds a time of a schedule, long after the last fault, that has no job. */
const missedTime = (every: number, made: Done, until: number, history: History) => (own: ReadonlyArray<Row>) => {
  if (hasStepped(history, Infinity)) return undefined
  const created = own.map((row) => Number(row["created"]))
  const first = Math.ceil((epochMillis + made.end + skewMillis) / every) * every
  for (let at = first; at + promptMillis < epochMillis + until; at += every) {
    const isCalm = !history.faults.some(
      ({ end, start }) => start < at + promptMillis - epochMillis && end + minute > at - epochMillis,
    )
    if (isCalm && !created.some((one) => one > at - skewMillis && one < at + promptMillis)) return at
  }
  return undefined
}

/** No schedule creates two jobs for one time, and none is forgotten. */
const runs = (made: Done, history: History): ReadonlyArray<string> => {
  const { minutes, overlap, workflow } = made.args as {
    readonly minutes: number
    readonly overlap: string
    readonly workflow: string
  }
  const maxLateMillis = minutes * minute + slackMillis
  const byHand = history.done.filter(
    ({ args, kind }) => kind === "runSchedule" && args["scheduleId"] === made.body.schedule_id,
  )
  // A job of a request without an answer is like one of a time.
  if (byHand.some(({ tries }) => tries.some(isUncertain))) return []
  const ofHand = new Set(byHand.map(({ body }) => body?.job_id))
  const all = history.rows["jobs"]!.filter((row) => row["workflow"] === workflow)
  const own = all.filter(({ id }) => !ofHand.has(String(id)))
  // The next time is always after the creation of the last job: each has a minute of its own.
  const places = own.map((row) => Math.floor(Number(row["created"]) / minute))
  const wrong = new Set(places).size < places.length ? [`${workflow} has two jobs of one minute`] : []
  const unfinished = own.filter((row) => row["status"] === "queued" || row["status"] === "running")
  if (overlap === "skip" && unfinished.length > 1)
    wrong.push(`${workflow} skips, and has ${unfinished.length} open jobs`)
  const stops = history.done.filter(
    ({ args, kind, tenant }) =>
      (kind === "deleteSchedule" && args["scheduleId"] === made.body.schedule_id) ||
      (kind === "deleteOrg" && tenant === made.tenant),
  )
  // Of a deleted org no job is left to look at.
  if (stops.some(({ kind }) => kind === "deleteOrg")) return []
  const isStopped = stops.length > 0
  const missed = missedTime(
    minutes * minute,
    made,
    Math.min(history.endAt, ...stops.map(({ start }) => start)),
    history,
  )
  if (overlap !== "skip" && missed(own) !== undefined)
    wrong.push(`${workflow} has no job of ${new Date(missed(own)!).toISOString()}`)
  if (isStopped || overlap === "skip" || history.endAt - made.end < maxLateMillis) return wrong
  const last = Math.max(...own.map((row) => Number(row["created"])))
  const now = Number(history.rows["clock"]![0]!["now"])
  return now - last < maxLateMillis
    ? wrong
    : [...wrong, `${workflow} was forgotten: its last job is of ${new Date(last).toISOString()}`]
}

/** No schedule runs twice or is forgotten. */
export const schedules = (history: History): ReadonlyArray<Violation> =>
  history.done
    .filter((one) => one.kind === "createSchedule" && succeeded(one))
    .flatMap((made) => runs(made, history).map((what) => ({ oracle: "schedules", at: history.endAt, what })))
