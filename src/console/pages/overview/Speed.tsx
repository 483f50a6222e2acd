import type { Answer } from "../../client/Operations.ts"
import { useData } from "../../client/queries.ts"
import { bytesText, shortNumber } from "../../components/numbers.ts"
import { Stat } from "../../components/Page.tsx"
import { durationText } from "../../components/Time.tsx"

export type Replica = Answer<"activity.replicas">["replicas"][number]
type Figures = NonNullable<Replica["figures"]>
export type Measured = "requests" | "validations" | "attempts" | "database"

const none = "–"

/** The replicas and the database, which say every 20 seconds how they are. */
export const useServiceState = () => useData("activity.replicas", {}, { isLive: false, refetchMillis: 20_000 }).data

/** "1.2 ms", "340 ms", "2.5 s". */
export const millisText = (millis: number | null | undefined) => {
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
export const Speed = () => {
  const state = useServiceState()
  const figures = state?.replicas.flatMap(({ figures }) => (figures === null ? [] : [figures])) ?? []
  return (
    <>
      {measures.map(({ label, name }) => {
        const { p50, p99, perMinute } = together(figures, name)
        return (
          <Stat
            key={name}
            label={`${label} p99`}
            note={p50 === null ? "none in 5 minutes" : `median ${millisText(p50)}, ${rate(perMinute)} a minute`}
          >
            <span title="99 of 100 were faster, in the last five minutes, at the slowest replica">
              {millisText(p99)}
            </span>
          </Stat>
        )
      })}
      <Stat
        label="Database size"
        note={state === undefined ? none : state.database.writable ? "writable" : "read-only"}
      >
        {state === undefined || state.database.bytes === null ? none : bytesText(state.database.bytes)}
      </Stat>
    </>
  )
}
