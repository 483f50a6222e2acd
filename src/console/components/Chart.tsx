import { useMemo, useState } from "preact/hooks"
import { numberText, shortNumber } from "./numbers.ts"
import { Link, navigate } from "../navigation/router.tsx"
import { Table } from "./Table.tsx"

export interface Series<Name extends string = string> {
  readonly name: Name
  readonly label: string
  readonly tone: "good" | "warn" | "bad" | "calm" | "accent"
}
export type Interval<Name extends string> = { readonly at: string } & { readonly [N in Name]: number }

interface ChartProps<Name extends string> {
  /** What is counted, for the table and for people who do not see the chart. */
  readonly title: string
  readonly series: ReadonlyArray<Series<Name>>
  readonly intervals: ReadonlyArray<Interval<Name>> | undefined
  readonly every: "minute" | "hour" | "day"
  /** The address of what an interval counts: its column and its row in the table lead there. */
  readonly linkTo?: ((since: string, until: string) => string) | undefined
}

/** The zone of the reader, as charts by day name it. */
export const readersZone = Intl.DateTimeFormat().resolvedOptions().timeZone

/** Adds up hours by the days of the reader's zone. */
export const byDay = <I extends { readonly at: string }>(hours: ReadonlyArray<I> | undefined) => {
  if (hours === undefined) return undefined
  const days = new Map<string, Record<string, number | string>>()
  for (const { at, ...counts } of hours) {
    const time = new Date(at)
    const day = new Date(time.getFullYear(), time.getMonth(), time.getDate()).toISOString()
    const sums = days.get(day) ?? { at: day }
    for (const [name, count] of Object.entries(counts as Record<string, number>))
      sums[name] = Number(sums[name] ?? 0) + count
    days.set(day, sums)
  }
  return [...days.values()] as unknown as ReadonlyArray<I>
}

/** Where a chart by minute, hour or day of the reader begins: a day ago, or at the midnight of 30 days. */
export const useBeginning = (every: "minute" | "hour" | "day") =>
  useMemo(() => {
    const now = new Date()
    const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 29)
    return (every === "day" ? midnight : new Date(Date.now() - 23 * millisOf.hour)).toISOString()
  }, [every])

/** "day in Europe/Berlin": what a chart counts by. */
export const unitText = (every: string) => (every === "day" ? `day in ${readersZone}` : every)

export const millisOf = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const
const formats = {
  minute: new Intl.DateTimeFormat(undefined, { timeStyle: "short" }),
  hour: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }),
  day: new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }),
}

/** The top of the axis: a round number that is not far above the largest value. */
const niceTop = (value: number) => {
  if (value <= 4) return 4
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value)!
}

const height = 100
const columnWidth = 10

/**
 * Stacked columns over time. The legend has the sums, or the values that the pointer is on; everything is also a table.
 */
export const Chart = <Name extends string>({ every, intervals, linkTo, series, title }: ChartProps<Name>) => {
  const [marked, setMarked] = useState<number>()
  if (intervals === undefined) return <span class="skeleton block" />
  const sum = (interval: Interval<Name>) => series.reduce((all, { name }) => all + interval[name], 0)
  const totals = series.map(({ name }) => intervals.reduce((all, interval) => all + interval[name], 0))
  const top = niceTop(Math.max(0, ...intervals.map(sum)))
  const shown = marked === undefined ? undefined : intervals[marked]
  const time = (at: string | undefined) => (at === undefined ? "" : formats[every].format(new Date(at)))
  const addressOf = (at: string) =>
    linkTo?.(new Date(at).toISOString(), new Date(Date.parse(at) + millisOf[every]).toISOString())
  const open = (at: string) => {
    const to = addressOf(at)
    if (to !== undefined) navigate(to)
  }
  const values = series.map(({ name }, i) => shown?.[name] ?? totals[i]!)
  const summary = series.map(({ label }, i) => `${label} ${numberText(totals[i]!)}`).join(", ")
  const column = (interval: Interval<Name>, i: number) => {
    let bottom = height
    return (
      <g
        key={interval.at}
        class={linkTo === undefined ? undefined : "leads"}
        // A chart that appears below a pointer at rest shows its sums.
        onPointerMove={({ movementX, movementY }) => (movementX !== 0 || movementY !== 0) && setMarked(i)}
        // The first tap shows the values, a second one goes where a click does.
        onClick={(event) =>
          (event as unknown as PointerEvent).pointerType === "touch" && marked !== i ? setMarked(i) : open(interval.at)
        }
      >
        <rect
          class={`column ${i === marked ? "marked" : ""}`}
          x={i * columnWidth}
          y={0}
          width={columnWidth}
          height={height}
        />
        {series.map(({ name, tone }) => {
          const size = (interval[name] / top) * height
          bottom -= size
          return (
            <rect
              key={name}
              class={`series-${tone}`}
              x={i * columnWidth + 1}
              y={bottom}
              width={columnWidth - 2}
              height={size}
            />
          )
        })}
      </g>
    )
  }
  return (
    <figure class="chart" aria-label={title}>
      <div class="chart-head">
        <ul class="legend">
          {series.map(({ label, name, tone }, i) => (
            <li key={name} class={`series-${tone}`}>
              {label} <b>{numberText(values[i]!)}</b>
            </li>
          ))}
        </ul>
      </div>
      <div class="plot" onPointerLeave={({ pointerType }) => pointerType !== "touch" && setMarked(undefined)}>
        <svg
          viewBox={`0 0 ${intervals.length * columnWidth} ${height}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}: ${summary}`}
        >
          {[0, height / 2, height].map((y) => (
            <line key={y} x1={0} x2={intervals.length * columnWidth} y1={y} y2={y} />
          ))}
          {intervals.map(column)}
        </svg>
        <div class="axis-y" aria-hidden="true">
          {[top, top / 2, 0].map((value) => (
            <span key={value}>{shortNumber(value)}</span>
          ))}
        </div>
        {totals.every((total) => total === 0) && <p class="plot-empty">Nothing in this time</p>}
        <div class="axis-x" aria-hidden="true">
          <span>{time(intervals[0]?.at)}</span>
          <strong>{time(shown?.at)}</strong>
          <span>{time(intervals.at(-1)?.at)}</span>
        </div>
      </div>
      <details>
        <summary>Show as a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label={`${title}, as a table`}>
          <Table
            caption={title}
            rows={intervals.toReversed()}
            rowKey={({ at }) => at}
            empty="Nothing"
            columns={[
              {
                title: "From",
                cell: ({ at }) => {
                  const to = addressOf(at)
                  return to === undefined ? time(at) : <Link to={to}>{time(at)}</Link>
                },
              },
              ...series.map(({ label, name }) => ({
                title: label,
                align: "end" as const,
                cell: (interval: Interval<Name>) => numberText(interval[name]),
              })),
            ]}
          />
        </div>
      </details>
    </figure>
  )
}
