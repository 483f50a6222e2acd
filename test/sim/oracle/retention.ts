import { timeOfId } from "#src/infrastructure/database/fragments.ts"
import { type History, succeeded, type Violation } from "../history.ts"
import { epochMillis } from "../world.ts"

type Row = History["rows"][string][number]

const hour = 3_600_000
/** How much longer events are kept at most: the length of their range, and of a pass that gave way; or of an org. */
const longerMillis = (days: number) => 2 * hour * days + 300_000
const longerOfOrgMillis = 2_700_000
/** How far clocks may be from the true time. */
const clockMillis = 200_000

/** Nothing is removed in its time, and what is past it goes: events with their deliveries, and finished jobs. */
export const retention = ({ done, endAt, removed, retentionDays, rows }: History): ReadonlyArray<Violation> => {
  const day = 24 * hour
  const asked = done.filter(({ kind }) => kind === "setRetention")
  /** The orgs with a day of their own; and those that may have it. */
  const [shorter, maybe] = [asked.filter(succeeded), asked].map((all) => new Set(all.map(({ args }) => args["orgId"])))
  const deleted = new Set(done.filter(({ kind }) => kind === "deleteOrg").map(({ args }) => args["orgId"]))
  const timeOf = (id: unknown) => timeOfId(String(id)) - epochMillis
  /** When the time of a row began: an event's when it was made, a job's when it ended. */
  const beganAt = ({ end_id, id }: Row) => timeOf(end_id ?? id)
  const early = removed.flatMap(({ at, row, table }): ReadonlyArray<Violation> => {
    const { id, status } = row
    if (deleted.has(row["org_id"])) return []
    const isOpen = status === "queued" || status === "running"
    if (!isOpen && at - beganAt(row) >= (maybe!.has(row["org_id"]) ? day : day * retentionDays) - clockMillis) return []
    const what = `${String(id)} of ${table} was removed ${isOpen ? "open" : "in its time"}`
    return [{ oracle: "retention", at, what }]
  })
  const gone = new Set(removed.map(({ row }) => row["id"]))
  const longest = (row: Row) =>
    shorter!.has(row["org_id"]) ? day + longerOfOrgMillis : day * retentionDays + longerMillis(retentionDays)
  const isLate = (row: Row) => !gone.has(row["id"]) && endAt - beganAt(row) > longest(row)
  const kept = (table: string, all: ReadonlyArray<Row>) =>
    all.filter(isLate).map(({ id }) => ({ oracle: "retention", at: endAt, what: `${String(id)} of ${table} is kept` }))
  return [
    ...early,
    ...kept("events", rows["events"]!),
    ...kept(
      "jobs",
      rows["jobs"]!.filter((row) => row["end_id"] != null),
    ),
  ]
}
