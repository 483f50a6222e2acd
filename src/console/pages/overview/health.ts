import type { Answer } from "../../client/Operations.ts"
import { durationText } from "../../components/Time.tsx"
import { counted, numberText } from "../../components/numbers.ts"

type Overview = Answer<"activity.overview">
type Replica = Answer<"activity.replicas">["replicas"][number]
type Failing = Answer<"activity.failing">["endpoints"][number]

export interface Problem {
  readonly tone: "warn" | "bad"
  readonly text: string
  /** What to look at. */
  readonly remedy: string
}

/** `silent`: the service answers, and its database does not. `unknown`: the service does not answer. */
export type DatabaseState = "writable" | "readOnly" | "silent" | "unknown"

const databaseProblems: Readonly<Record<DatabaseState, Problem | undefined>> = {
  writable: undefined,
  readOnly: {
    tone: "bad",
    text: "The database is read-only.",
    remedy: "Keys are validated; everything that writes is a 503. Look whether DATABASE_URL names a standby.",
  },
  silent: {
    tone: "bad",
    text: "The database does not answer.",
    remedy: "Keys that a replica knows are validated; everything else is a 503. What is shown here is from before.",
  },
  unknown: {
    tone: "bad",
    text: "The service does not answer.",
    remedy: "The process is down, or your network. What is shown here is from before.",
  },
}

const recentMinutes = 10
/** Shares and waits from which on they are a problem: the first needs a look, the second hurts receivers. */
const shares = { warn: 0.05, bad: 0.25 }
const waits = { warn: 60_000, bad: 300_000 }
/** The median of the database's operations from which on everything is slow, in milliseconds. */
const slowDatabase = { warn: 100, bad: 1_000 }
/** Fewer attempts say nothing about a share. */
const minimumAttempts = 10

const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((all, one) => all + one, 0)

/** What happened in the last ten minutes of an overview by minute. */
export const recentOf = ({ deliveries, validations }: Overview) => {
  const recent = deliveries.slice(-recentMinutes)
  const delivered = sum(recent.map((one) => one.delivered))
  const attempts = delivered + sum(recent.map(({ failed, retried }) => failed + retried))
  return {
    minutes: recent.length,
    attempts,
    failedShare: attempts === 0 ? 0 : (attempts - delivered) / attempts,
    validations: sum(
      validations
        .slice(-recentMinutes)
        .map(({ forbidden, invalid, limited, valid }) => forbidden + invalid + limited + valid),
    ),
    unavailable: sum(validations.slice(-recentMinutes).map((one) => one.unavailable)),
  }
}

const toneOf = (value: number, from: { readonly warn: number; readonly bad: number }) =>
  value >= from.bad ? "bad" : value >= from.warn ? "warn" : undefined

/** The median of the database's operations at the slowest replica, in milliseconds. */
export const databaseMillisOf = (replicas: ReadonlyArray<Replica>) =>
  Math.max(0, ...replicas.map(({ figures }) => figures?.database.p50Millis ?? 0))

export const percentText = (share: number) => `${Number((share * 100).toFixed(share < 0.1 ? 1 : 0))} %`

/** What is wrong now, the worst first. */
export const problemsOf = (
  overview: Overview,
  failing: ReadonlyArray<Failing>,
  database: { readonly state: DatabaseState; readonly millis: number },
  now: number,
): ReadonlyArray<Problem> => {
  const { attempts, failedShare, unavailable } = recentOf(overview)
  const wait = overview.oldestDueAt === null ? 0 : now - Date.parse(overview.oldestDueAt)
  const waitTone = toneOf(wait, waits)
  const shareTone = attempts < minimumAttempts ? undefined : toneOf(failedShare, shares)
  const databaseTone = toneOf(database.millis, slowDatabase)
  const ended = failing.filter(({ active, deactivatedReason }) => !active && deactivatedReason !== "by_request").length
  const problems: Array<Problem | undefined> = [
    databaseProblems[database.state],
    unavailable === 0
      ? undefined
      : {
          tone: "bad",
          text: `${counted(unavailable, "validation")} had no answer in the last ${recentMinutes} minutes.`,
          remedy: "The database did not answer in time. The log and /readyz say why.",
        },
    databaseTone && {
      tone: databaseTone,
      text: `Half of the operations of the database take ${durationText(database.millis)} or more.`,
      remedy:
        "See which replica below. Look at the load and the disk of the database, and at long transactions of others.",
    },
    shareTone && {
      tone: shareTone,
      text: `${percentText(failedShare)} of ${numberText(attempts)} attempts failed in the last ${recentMinutes} minutes.`,
      remedy: "See below which endpoints fail, and of which orgs.",
    },
    waitTone && {
      tone: waitTone,
      text: `A delivery has been due for ${durationText(wait)}.`,
      remedy: "Endpoints that are slow or fail have their own backlog. If all endpoints wait, start another replica.",
    },
    ended === 0
      ? undefined
      : {
          tone: "warn",
          text: `${counted(ended, "endpoint was", "endpoints were")} deactivated after failing.`,
          remedy: "Tell its org: it receives nothing until it is active again.",
        },
  ]
  const found = problems.filter((problem) => problem !== undefined)
  return [...found.filter(({ tone }) => tone === "bad"), ...found.filter(({ tone }) => tone === "warn")]
}
