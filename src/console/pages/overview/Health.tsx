import type { ComponentChildren } from "preact"
import type { ResponseBody } from "../../client/Operations.ts"
import { GatehouseError } from "../../client/call.ts"
import { useData } from "../../client/queries.ts"
import { Notice } from "../../components/ErrorBox.tsx"
import { Empty, Stat } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { durationText, Time, useNow } from "../../components/Time.tsx"
import { bytesText, counted, numberText, shortNumber } from "../../components/numbers.ts"

type Overview = ResponseBody<"activity.overview">
const none = "–"

/** What the last response of /readyz says: whether it may write, or why there is none. */
const databaseStateOf = (writable: boolean | undefined, error: Error | null): DatabaseState => {
  if (error !== null) return error instanceof GatehouseError ? "silent" : "unknown"
  return writable === false ? "readOnly" : "writable"
}

/** Whether everything works, in a sentence for each problem. */
const Verdict = ({ overview }: { readonly overview: Overview }) => {
  const now = useNow()
  const { data: ready, error } = useData("system.readyz", {}, { refetchMillis: 15_000 })
  const { data: failing } = useData("activity.failing", { limit: 100 }, { refetchMillis: 15_000 })
  const state = useServiceState()
  const database = {
    state: databaseStateOf(ready?.writable, error),
    warning: ready?.warning,
    millis: databaseMillisOf(state?.replicas ?? []),
  }
  const problems = problemsOf(overview, failing?.endpoints ?? [], database, now)
  if (problems.length === 0) {
    const { attempts, failed } = recentOf(overview)
    return (
      <Notice tone="good">
        <strong>{failed === 0 ? "Everything works" : "The service works"}</strong>
        <span>
          The database answers, and deliveries are sent in time.{" "}
          {failed > 0 &&
            `${numberText(failed)} of ${counted(attempts, "attempt")} failed in the last ${recentMinutes} minutes.`}
        </span>
      </Notice>
    )
  }
  return (
    <>
      {problems.map(({ remedy, text, to, tone }) => (
        <Notice key={text} tone={tone}>
          <strong>{text}</strong>
          <span>
            {remedy} {to !== undefined && <a href={`#${to}`}>Show it</a>}
          </span>
        </Notice>
      ))}
    </>
  )
}

/** A line of values over the last hour, the newest at the right; the minute that is not over yet is left out. */
const Sparkline = ({ minutes, tone }: { readonly tone: string; readonly minutes: ReadonlyArray<number> }) => {
  const values = minutes.slice(0, -1)
  const top = Math.max(1e-9, ...values)
  const points = values.map((value, i) => `${i},${Number((20 - (value / top) * 20).toFixed(2))}`)
  return (
    <svg
      class={`spark series-${tone}`}
      viewBox={`0 0 ${Math.max(1, values.length - 1)} 20`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <title>The last hour</title>
      <polyline points={points.join(" ")} />
    </svg>
  )
}

/** The state of the service now: what is wrong, what happens, and how fast it is. */
export const Health = () => {
  const { data } = useData("activity.overview", { every: "minute" }, { refetchMillis: 10_000 })
  const recent = data && recentOf(data)
  const perMinute = (count: number | undefined) => {
    if (recent === undefined || count === undefined) return none
    const rate = count / Math.max(1, recent.minutes)
    return rate > 0 && rate < 1 ? "< 1" : shortNumber(Math.round(rate))
  }
  const figures = [
    {
      label: "Attempts per minute",
      value: perMinute(recent?.attempts),
      tone: "accent",
      values: data?.deliveries.map(attemptsOf),
    },
    {
      label: "Failed attempts",
      value: recent === undefined ? none : percentText(recent.failedShare),
      isFailure: recent !== undefined && recent.failedShare > 0,
      tone: "bad",
      values: data?.deliveries.map((one) => (attemptsOf(one) - one.delivered) / Math.max(1, attemptsOf(one))),
    },
    {
      label: "Validations per minute",
      value: perMinute(recent?.validations),
      tone: "accent",
      values: data?.validations.map(validationsOf),
    },
    {
      label: "Jobs per minute",
      value: perMinute(recent?.jobs),
      tone: "accent",
      values: data?.jobs.map(jobsOf),
    },
  ]
  return (
    <>
      {data === undefined ? <span class="skeleton verdict" /> : <Verdict overview={data} />}
      <div class="grid-4">
        {figures.map(({ isFailure = false, label, tone, value, values = [] }) => (
          <Stat
            key={label}
            label={label}
            note={
              <>
                last 10 minutes
                <Sparkline tone={tone} minutes={values} />
              </>
            }
          >
            <span class={isFailure ? "attention" : ""}>{value}</span>
          </Stat>
        ))}
      </div>
      <dl class="card strip-of-figures">
        <Figure
          label="Backlog"
          note={
            data?.oldestDueAt == null ? (
              "nothing waits"
            ) : (
              <>
                oldest due <Time at={data.oldestDueAt} isRelative />
              </>
            )
          }
        >
          {data === undefined ? none : data.backlog >= 10_000 ? "10,000+" : shortNumber(data.backlog)}
        </Figure>
        <Speed />
        <Figure
          label="Replicas"
          note={data === undefined || data.sweeps === 0 ? "no open sweep" : counted(data.sweeps, "open sweep")}
        >
          {data?.replicas ?? none}
        </Figure>
      </dl>
    </>
  )
}

interface FigureProps {
  readonly label: string
  readonly note: ComponentChildren
  readonly children: ComponentChildren
}

/** A figure in the strip of those that are looked at when something is wrong. */
const Figure = ({ children, label, note }: FigureProps) => (
  <div>
    <dt>{label}</dt>
    <dd>{children}</dd>
    <dd class="note">{note}</dd>
  </div>
)

/** The median and the 99th percentile of a replica. */
const durations = (title: string, name: Measured) => ({
  title,
  align: "end" as const,
  cell: ({ figures }: Replica) => {
    const { p50Millis = null, p99Millis = null } = figures?.[name] ?? {}
    if (p50Millis === null) return "–"
    return (
      <span class="stack tight" title="The median, and what 99 of 100 were faster than">
        <span>{millisText(p50Millis)}</span>
        <span class="quiet">{millisText(p99Millis)}</span>
      </span>
    )
  },
})

/** Each process of the service, with how fast it was in the last five minutes: median and 99th percentile. */
export const Replicas = () => {
  const state = useServiceState()
  return (
    <ListCard
      id="replicas"
      title="Replicas"
      actions={<span class="quiet small">median, and below it the 99th percentile</span>}
      caption="Replicas, with the median and the 99th percentile of what they measured"
      rows={state?.replicas}
      rowKey={({ replicaId }) => replicaId}
      empty={<Empty icon="activity" title="No replica was seen in the last minute" />}
      columns={[
        {
          title: "Replica",
          cell: ({ replicaId }) => (
            <code class="clip" title={replicaId}>
              {replicaId}
            </code>
          ),
        },
        { title: "Started", align: "fit", cell: ({ startedAt }) => <Time at={startedAt} isRelative /> },
        durations("Requests", "requests"),
        durations("Validations", "validations"),
        durations("Receivers", "attempts"),
        durations("Database", "database"),
        {
          title: "In flight",
          align: "end",
          cell: ({ figures }) =>
            figures === null ? (
              "–"
            ) : (
              <span title="Operations of the database in flight, and the most connections">
                {figures.databaseInFlight} of {figures.databaseConnections}
              </span>
            ),
        },
      ]}
    />
  )
}

type Replica = ResponseBody<"activity.replicas">["replicas"][number]
type Figures = NonNullable<Replica["figures"]>
type Measured = "requests" | "validations" | "attempts" | "database"

/** The replicas and the database, which say every 20 seconds how they are. */
const useServiceState = () => useData("activity.replicas", {}, { isLive: false, refetchMillis: 20_000 }).data

/** "1.2 ms", "340 ms", "2.5 s". */
const millisText = (millis: number | null | undefined) => {
  if (millis === null || millis === undefined) return none
  return millis < 10 ? `${Number(millis.toPrecision(2))} ms` : durationText(millis)
}

/** The figures of all replicas together: durations of several cannot be added up, so they are those of the slowest. */
const together = (all: ReadonlyArray<Figures>, name: Measured) => {
  const largest = (share: "p50Millis" | "p99Millis") => {
    const known = all.map((figures) => figures[name][share]).filter((millis) => millis !== null)
    return known.length === 0 ? null : Math.max(...known)
  }
  const perMinute = all.reduce((sum, figures) => sum + figures[name].perMinute, 0)
  return { p50: largest("p50Millis"), p99: largest("p99Millis"), perMinute }
}

const measures = [
  { name: "requests", label: "Requests" },
  { name: "validations", label: "Validations" },
  { name: "attempts", label: "Receivers" },
  { name: "database", label: "Database" },
] as const

const rate = (perMinute: number) => (perMinute > 0 && perMinute < 1 ? "under 1" : shortNumber(Math.round(perMinute)))

/** How long things take, and the database, in five figures. */
const Speed = () => {
  const state = useServiceState()
  const figures = state?.replicas.flatMap(({ figures }) => (figures === null ? [] : [figures])) ?? []
  return (
    <>
      {measures.map(({ label, name }) => {
        const { p50, p99, perMinute } = together(figures, name)
        return (
          <Figure
            key={name}
            label={`${label} p99`}
            note={p50 === null ? "none in 5 minutes" : `median ${millisText(p50)}, ${rate(perMinute)} per minute`}
          >
            <span title="99 of 100 were faster, in the last five minutes, at the slowest replica">
              {millisText(p99)}
            </span>
          </Figure>
        )
      })}
      <Figure
        label="Database size"
        note={state === undefined ? none : state.database.writable ? "writable" : "read-only"}
      >
        {state === undefined || state.database.bytes === null ? none : bytesText(state.database.bytes)}
      </Figure>
    </>
  )
}

type Failing = ResponseBody<"activity.failing">["endpoints"][number]

interface Problem {
  readonly tone: "warn" | "bad"
  readonly text: string
  /** What to look at. */
  readonly remedy: string
  /** The card of this page that has it. */
  readonly to?: "failing" | "replicas"
}

/** `silent`: the service answers, and its database does not. `unknown`: the service does not answer. */
type DatabaseState = "writable" | "readOnly" | "silent" | "unknown"

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
/** With fewer attempts, a share means nothing. */
const minimumAttempts = 10

const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((all, one) => all + one, 0)

const attemptsOf = ({ delivered, failed, retried }: Overview["deliveries"][number]) => delivered + failed + retried
const validationsOf = ({ forbidden, invalid, limited, valid }: Overview["validations"][number]) =>
  forbidden + invalid + limited + valid
const jobsOf = ({ canceled, completed, failed }: Overview["jobs"][number]) => canceled + completed + failed

/** What happened in the last ten minutes of an overview by minute. */
const recentOf = ({ deliveries, jobs, validations }: Overview) => {
  const recent = deliveries.slice(-recentMinutes)
  const attempts = sum(recent.map(attemptsOf))
  const failed = attempts - sum(recent.map((one) => one.delivered))
  return {
    minutes: recent.length,
    attempts,
    failed,
    failedShare: attempts === 0 ? 0 : failed / attempts,
    validations: sum(validations.slice(-recentMinutes).map(validationsOf)),
    unavailable: sum(validations.slice(-recentMinutes).map((one) => one.unavailable)),
    jobs: sum(jobs.slice(-recentMinutes).map(jobsOf)),
  }
}

const toneOf = (value: number, from: { readonly warn: number; readonly bad: number }) =>
  value >= from.bad ? "bad" : value >= from.warn ? "warn" : undefined

/** The median of the database's operations at the slowest replica, in milliseconds. */
const databaseMillisOf = (replicas: ReadonlyArray<Replica>) =>
  Math.max(0, ...replicas.map(({ figures }) => figures?.database.p50Millis ?? 0))

const percentText = (share: number) => `${Number((share * 100).toFixed(share < 0.1 ? 1 : 0))} %`

/** What is wrong now, the worst first. */
const problemsOf = (
  overview: Overview,
  failing: ReadonlyArray<Failing>,
  database: { readonly state: DatabaseState; readonly warning: string | undefined; readonly millis: number },
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
    database.warning === undefined
      ? undefined
      : { tone: "warn", text: `${database.warning}.`, remedy: "Until then, each validation asks the database." },
    unavailable === 0
      ? undefined
      : {
          tone: "bad",
          text: `${counted(unavailable, "validation")} had no response in the last ${recentMinutes} minutes.`,
          remedy: "The database did not answer in time. The log and /readyz say why.",
        },
    databaseTone && {
      tone: databaseTone,
      text: `Half of the operations of the database take ${durationText(database.millis)} or more.`,
      remedy:
        "See which replica below. Look at the load and the disk of the database, and at long transactions of others.",
      to: "replicas",
    },
    shareTone && {
      tone: shareTone,
      text: `${percentText(failedShare)} of ${numberText(attempts)} attempts failed in the last ${recentMinutes} minutes.`,
      remedy: "See below which endpoints fail, and of which orgs.",
      to: "failing",
    },
    waitTone && {
      tone: waitTone,
      text: `A delivery has been due for ${durationText(wait)}.`,
      remedy: "Endpoints that are slow or fail have their own backlog. If all endpoints wait, start another replica.",
      to: "failing",
    },
    ended === 0
      ? undefined
      : {
          tone: "warn",
          text: `${counted(ended, "endpoint was", "endpoints were")} deactivated after failing.`,
          remedy: "Tell its org: it receives nothing until it is active again.",
          to: "failing",
        },
  ]
  const found = problems.filter((problem) => problem !== undefined)
  return [...found.filter(({ tone }) => tone === "bad"), ...found.filter(({ tone }) => tone === "warn")]
}
