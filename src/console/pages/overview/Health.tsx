import type { Answer } from "../../client/Operations.ts"
import { GatehouseError } from "../../client/call.ts"
import { useData } from "../../client/queries.ts"
import { Notice } from "../../components/ErrorBox.tsx"
import { shortNumber } from "../../components/numbers.ts"
import { Stat } from "../../components/Page.tsx"
import { Time, useNow } from "../../components/Time.tsx"
import { type DatabaseState, databaseMillisOf, percentText, problemsOf, recentOf } from "./health.ts"
import { Speed, useServiceState } from "./Speed.tsx"

type Overview = Answer<"activity.overview">
const none = "–"

/** What the last answer of /readyz says: whether it may write, or why there is none. */
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
  const database = { state: databaseStateOf(ready?.writable, error), millis: databaseMillisOf(state?.replicas ?? []) }
  const problems = problemsOf(overview, failing?.endpoints ?? [], database, now)
  if (problems.length === 0) {
    return (
      <Notice tone="good">
        <strong>Everything works</strong>
        <span>The database answers, deliveries are sent in time, and attempts succeed.</span>
      </Notice>
    )
  }
  return (
    <>
      {problems.map(({ remedy, text, tone }) => (
        <Notice key={text} tone={tone}>
          <strong>{text}</strong>
          <span>{remedy}</span>
        </Notice>
      ))}
    </>
  )
}

/** The state of the service now: what is wrong, what happens, and how fast it is. */
export const Health = () => {
  const { data } = useData("activity.overview", { every: "minute" }, { refetchMillis: 10_000 })
  const recent = data && recentOf(data)
  const perMinute = (count: number | undefined) =>
    recent === undefined || count === undefined ? none : shortNumber(Math.round(count / Math.max(1, recent.minutes)))
  return (
    <>
      {data === undefined ? <span class="skeleton verdict" /> : <Verdict overview={data} />}
      <div class="grid-5">
        <Stat
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
        </Stat>
        <Stat label="Attempts a minute" note="last 10 minutes">
          {perMinute(recent?.attempts)}
        </Stat>
        <Stat label="Failed attempts" note="last 10 minutes">
          {recent === undefined ? none : percentText(recent.failedShare)}
        </Stat>
        <Stat label="Validations a minute" note="last 10 minutes">
          {perMinute(recent?.validations)}
        </Stat>
        <Stat
          label="Replicas"
          note={data === undefined || data.sweeps === 0 ? "no sweep is open" : `${data.sweeps} sweeps are open`}
        >
          {data?.replicas ?? none}
        </Stat>
        <Speed />
      </div>
    </>
  )
}
