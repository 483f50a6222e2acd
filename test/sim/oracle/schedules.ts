import { type Done, hasStepped, type History, succeeded, type Violation } from "../history.ts"

import { epochMillis } from "../world.ts"

const minute = 60_000
/** How far the clocks of replicas and of the database may be from the true time, with the time of a search. */
const slackMillis = minute + 100_000

/** No schedule creates two jobs for one time, and none is forgotten. */
const runs = (made: Done, history: History): ReadonlyArray<string> => {
  const { minutes, overlap, workflow } = made.args as {
    readonly minutes: number
    readonly overlap: string
    readonly workflow: string
  }
  const maxLateMillis = minutes * minute + slackMillis
  const own = history.rows["jobs"]!.filter((row) => row["workflow"] === workflow)
  // The next time is always after the creation of the last job: each has a minute of its own.
  const places = own.map((row) => Math.floor(Number(row["created"]) / minute))
  const wrong = new Set(places).size < places.length ? [`${workflow} has two jobs of one minute`] : []
  const unfinished = own.filter((row) => row["status"] === "queued" || row["status"] === "running")
  if (overlap === "skip" && unfinished.length > 1)
    wrong.push(`${workflow} skips, and has ${unfinished.length} open jobs`)
  const isStopped = history.done.some(
    ({ args, kind, tenant }) =>
      (kind === "deleteSchedule" && args["scheduleId"] === made.body.schedule_id) ||
      (kind === "deleteOrg" && tenant === made.tenant),
  )
  const times = own.map((row) => Number(row["created"])).toSorted((one, other) => one - other)
  const isCalm = (from: number, to: number) =>
    !history.faults.some(({ end, start }) => start - minute < to - epochMillis && end + minute > from - epochMillis)
  const gap = times.findIndex((at, n) => at - times[n - 1]! > minutes * minute + 20_000 && isCalm(times[n - 1]!, at))
  if (overlap !== "skip" && gap > 0 && !hasStepped(history, Infinity)) {
    wrong.push(
      `${workflow} has no job between ${new Date(times[gap - 1]!).toISOString()} and ${new Date(times[gap]!).toISOString()}`,
    )
  }
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
