import { type History, isTouched, type Violation } from "../history.ts"
import type { Entry } from "../world.ts"

/** When the faults have stopped, everything settles in the documented time. */
export const settled = ({ endAt, rows }: History): ReadonlyArray<Violation> =>
  rows["unsettled"]!.map(({ id, what }) => ({
    oracle: "settled",
    at: endAt,
    what: `${String(what)} ${String(id)} is left`,
  }))

const faulty = new Set([400, 403, 405, 413, 415, 422, 500])
/**
 * What a valid request may be refused as: a key without the permission of its use, an event that the catalogue refuses,
 * a person without a role, and a token of the provider by a clock that is off.
 */
const refusals: Readonly<Record<string, number>> = {
  useRole: 403,
  strictPublish: 400,
  loseRole: 403,
  logOut: 400,
}

/** No valid request is refused as invalid, and none meets an unexpected fault. */
export const valid = ({ done }: History): ReadonlyArray<Violation> =>
  done.flatMap(({ body, kind, tenant, tries }) =>
    tries
      .filter(({ status }) => status !== undefined && faulty.has(status) && status !== refusals[kind])
      .map(({ end, status }) => ({
        oracle: "valid",
        at: end,
        what: `${kind} of ${tenant} was answered ${String(status)}: ${JSON.stringify(body).slice(0, 150)}`,
      })),
  )

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

/** What lost notifications explain: the log names it as an error, because a pooler has the same signs. */
const ofLostNotifications = "logs ERROR Notifications do not arrive"

/**
 * An attempt that five commits could not record, because each was cut or the database had too much to do to answer it,
 * is given up: its delivery is due again.
 */
const isOfCommits = (history: History, { at, what, who }: Entry) =>
  what.startsWith("logs ERROR An attempt could not be recorded") &&
  what.includes("Unavailable") &&
  (isTouched(history, new Set(["cut at commit"]), who, at - 10_000, at) ||
    history.unanswered.filter((one) => one.who === who && one.at <= at && one.at > at - 30_000).length >= 5)

/** No replica meets a fault that it has not expected: it logs one as an error, and an expected one as a warning. */
export const quiet = (history: History): ReadonlyArray<Violation> =>
  history.errors
    .filter((entry) => !entry.what.startsWith(ofLostNotifications) && !isOfCommits(history, entry))
    .map(({ at, what, who }) => ({ oracle: "quiet", at, what: `${who} ${what}` }))
