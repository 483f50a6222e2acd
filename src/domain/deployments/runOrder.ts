import { DateTime } from "effect"

/** The place of a run among the runs of its repository. */
export interface RunPosition {
  readonly runId: string
  readonly runAttempt: number
  /** When its token was issued, or when it registered. */
  readonly at: DateTime.Utc
}

const isNumber = (id: string) => /^[0-9]{1,255}$/.test(id)

/**
 * Whether a run is newer than another one. Numeric run ids have an order, then the attempt. Ids without an order (UUIDs)
 * compare by time.
 */
export const isNewer = (run: RunPosition, than: RunPosition): boolean => {
  if (run.runId === than.runId) return run.runAttempt > than.runAttempt
  if (isNumber(run.runId) && isNumber(than.runId)) return BigInt(run.runId) > BigInt(than.runId)
  return DateTime.isGreaterThanOrEqualTo(run.at, than.at)
}

/** The newest of runs; `null` when there is none. */
export const newestOf = (runs: ReadonlyArray<RunPosition | null>): RunPosition | null =>
  runs.reduce((newest, run) => (newest === null || (run !== null && isNewer(run, newest)) ? run : newest), null)
