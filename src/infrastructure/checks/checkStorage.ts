import { Clock, DateTime, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { databaseBytes } from "../database/Database.ts"
import { date } from "../database/fragments.ts"
import { type Check, inBytes, ok, warn } from "./Check.ts"

/** Bytes of a job with its event, or of a delivery with its attempt: half of what both were measured with. */
const bytesOfRow = 800
/** The rate is that of the days among these on which something happened. Today has not ended, and is not among them. */
const rateDays = 7
/** Above this size a database needs a plan, in bytes. */
const plannedBytes = 100e9
const dayMillis = 86_400_000

interface Storage {
  /** The size of the database now, in bytes. */
  readonly bytes: number
  /** Finished jobs and attempts in a day; `undefined` when no day that has ended had any. */
  readonly rowsPerDay: number | undefined
  /** `undefined`: nothing is ever removed. */
  readonly retentionDays: number | undefined
  /** What is free on the disk of the database, in bytes; `undefined` when it is on another machine. */
  readonly freeBytes: number | undefined
}

/** Compares what the retention will keep, at the present rate, with what there is. */
export const storageCheck = ({ bytes, freeBytes, retentionDays, rowsPerDay }: Storage): Check => {
  const kept =
    retentionDays === undefined ? "a year without RETENTION_DAYS needs" : `RETENTION_DAYS=${retentionDays} needs`
  if (rowsPerDay === undefined) {
    const unknown = `what ${kept} is unknown: none of the last ${rateDays} whole days had jobs or deliveries`
    return ok("storage", `the database has ${inBytes(bytes)}; ${unknown}`)
  }
  const expected = rowsPerDay * bytesOfRow * (retentionDays ?? 365)
  const found = `the database has ${inBytes(bytes)}; at the rate of the last ${rateDays} days, ${kept} ${inBytes(expected)}`
  const growth = expected - bytes
  if (freeBytes !== undefined && growth > freeBytes) {
    return warn(
      "storage",
      `${found}, and ${inBytes(freeBytes)} are free`,
      "set RETENTION_DAYS to less, or move DATA_DIR to a larger disk",
    )
  }
  return expected > plannedBytes && growth > bytes
    ? warn("storage", found, "make sure that the disk of the database has as much, or set RETENTION_DAYS to less")
    : ok("storage", found)
}

/** Checks what the retention will keep. Needs the migrations. */
export const checkStorage = Effect.fnUntraced(function* (retentionDays: number | undefined, freeBytes?: number) {
  const sql = yield* SqlClient.SqlClient
  const today = Math.floor((yield* Clock.currentTimeMillis) / dayMillis) * dayMillis
  const day = (days: number) => date(DateTime.makeUnsafe(today - days * dayMillis))
  const [counted] = yield* sql<{ rows: number; days: number }>`
    SELECT coalesce(sum(count), 0)::float8 AS rows, count(DISTINCT at)::int AS days FROM activity_counts
    WHERE org_id = '' AND every = 'day' AND at >= ${day(rateDays)} AND at < ${day(0)} AND kind IN ('jobs', 'deliveries')`
  const rowsPerDay = counted!.days === 0 ? undefined : counted!.rows / counted!.days
  return storageCheck({ bytes: yield* databaseBytes(sql), freeBytes, retentionDays, rowsPerDay })
})
