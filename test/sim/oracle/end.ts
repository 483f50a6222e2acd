import type { History, Violation } from "../history.ts"

/** When the faults have stopped, everything settles in the documented time. */
export const settled = ({ endAt, rows }: History): ReadonlyArray<Violation> =>
  rows["unsettled"]!.map(({ id, what }) => ({
    oracle: "settled",
    at: endAt,
    what: `${String(what)} ${String(id)} is left`,
  }))

/** Nothing of a deleted org remains. */
export const erased = ({ endAt, rows }: History): ReadonlyArray<Violation> =>
  rows["leftovers"]!.map((row) => ({
    oracle: "erased",
    at: endAt,
    what: `${String(row["count"])} rows of a deleted org are left in ${String(row["name"])}`,
  }))

/** Each row fits the others: what a table says twice, it says alike. */
export const tables = ({ endAt, rows }: History): ReadonlyArray<Violation> =>
  rows["misfits"]!.map(({ id, what }) => ({ oracle: "tables", at: endAt, what: `${String(what)}: ${String(id)}` }))
