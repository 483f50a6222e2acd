import { useState } from "preact/hooks"
import { numberText, shortNumber } from "./numbers.ts"
import { Link, navigate } from "../navigation/router.tsx"
import { styled } from "./Page.tsx"
import { Table } from "./Table.tsx"
import { useNow } from "./Time.tsx"

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

/** So many hours ago, from the start of the hour. It moves on while a page stays open. */
export const useHoursAgo = (hours: number) =>
  new Date((Math.floor(useNow(millisOf.minute) / millisOf.hour) - hours) * millisOf.hour)

/** Where a chart by minute, hour or day of the reader begins: a day ago, or at the midnight of 30 days. */
export const useBeginning = (every: "minute" | "hour" | "day") => {
  const hour = useHoursAgo(every === "day" ? 0 : 23)
  return (every === "day" ? new Date(hour.getFullYear(), hour.getMonth(), hour.getDate() - 29) : hour).toISOString()
}

/** "day in Europe/Berlin": what a chart counts by. */
export const unitText = (every: string) => (every === "day" ? `day in ${readersZone}` : every)

export const millisOf = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const
const formats = {
  minute: new Intl.DateTimeFormat(undefined, { timeStyle: "short" }),
  hour: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }),
  day: new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }),
}
const axisFormats = {
  minute: formats.minute,
  hour: formats.minute,
  day: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }),
}

/** Whether the axis names a column: each quarter of an hour or of a day, and each week back from the last day. */
const isNamed = {
  minute: (at: Date) => at.getMinutes() % 15 === 0,
  hour: (at: Date) => at.getHours() % 6 === 0,
  day: (_: Date, toLast: number) => toLast % 7 === 0,
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
 * Stacked columns over time. The legend has the sums, and a card the values of the column that the pointer, a tap or
 * the arrow keys are on; everything is also a table.
 */
export const Chart = <Name extends string>({ every, intervals, linkTo, series, title }: ChartProps<Name>) => {
  const [at, setMarked] = useState<number>()
  if (intervals === undefined) return <span class="skeleton block" />
  const count = intervals.length
  const marked = at === undefined ? undefined : Math.min(at, count - 1)
  const sum = (interval: Interval<Name>) => series.reduce((all, { name }) => all + interval[name], 0)
  const totals = series.map(({ name }) => intervals.reduce((all, interval) => all + interval[name], 0))
  const top = niceTop(Math.max(0, ...intervals.map(sum)))
  const shown = marked === undefined ? undefined : intervals[marked]
  const time = (at: string) => formats[every].format(new Date(at))
  const addressOf = (at: string) => {
    const [from, to] = [new Date(at), new Date(at)]
    // A day on which clocks change has 23 or 25 hours.
    if (every === "day") to.setDate(to.getDate() + 1)
    else to.setTime(to.getTime() + millisOf[every])
    return linkTo?.(from.toISOString(), to.toISOString())
  }
  const open = (at: string) => {
    const to = addressOf(at)
    if (to !== undefined) navigate(to)
  }
  const press = (event: KeyboardEvent) => {
    const { key } = event
    if (key === "Enter" && shown !== undefined) open(shown.at)
    const [left, right] = [marked ?? count, marked ?? -1]
    const to = { ArrowLeft: Math.max(0, left - 1), ArrowRight: Math.min(count - 1, right + 1), Home: 0, End: count - 1 }
    if (!(key in to) && (key !== "Escape" || marked === undefined)) return
    event.preventDefault()
    event.stopPropagation()
    setMarked(to[key as keyof typeof to])
  }
  const legend = (valueOf: (name: Name, i: number) => number) => (
    <ul class="legend">
      {series.map(({ label, name, tone }, i) => (
        <li key={name} class={`series-${tone}`}>
          {label} <b>{numberText(valueOf(name, i))}</b>
        </li>
      ))}
    </ul>
  )
  const summary = series.map(({ label }, i) => `${label} ${numberText(totals[i]!)}`).join(", ")
  const column = (interval: Interval<Name>, i: number) => {
    let bottom = height
    return (
      <g
        key={interval.at}
        class={linkTo === undefined ? undefined : "leads"}
        // A chart that appears below a pointer at rest shows no card.
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
  // Beside its column, where there is more space.
  const place = (i: number) =>
    i < count / 2
      ? ({ left: `${((i + 1) / count) * 100}%` } as const)
      : ({ right: `${(1 - i / count) * 100}%` } as const)
  return (
    <figure class="chart" aria-label={title}>
      {legend((_, i) => totals[i]!)}
      <div class="plot" onPointerLeave={({ pointerType }) => pointerType !== "touch" && setMarked(undefined)}>
        <svg
          viewBox={`0 0 ${count * columnWidth} ${height}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title}: ${summary}`}
          tabIndex={0}
          onKeyDown={press}
          onBlur={() => setMarked(undefined)}
        >
          {[0, height / 2, height].map((y) => (
            <line key={y} x1={0} x2={count * columnWidth} y1={y} y2={y} />
          ))}
          {intervals.map(column)}
        </svg>
        <div class="axis-y" aria-hidden="true">
          {[top, top / 2, 0].map((value) => (
            <span key={value}>{shortNumber(value)}</span>
          ))}
        </div>
        {totals.every((total) => total === 0) && <p class="plot-empty">Nothing in this time</p>}
        <div class="values" role="status" {...(marked !== undefined && styled(place(marked)))}>
          {shown !== undefined && (
            <>
              <strong>{time(shown.at)}</strong>
              {legend((name) => shown[name])}
            </>
          )}
        </div>
        <div class="axis-x" aria-hidden="true">
          {intervals.map(({ at }, i) => {
            const from = new Date(at)
            if (!isNamed[every](from, count - 1 - i)) return null
            return (
              <span key={at} {...styled({ left: `${((i + 0.5) / count) * 100}%` })}>
                {axisFormats[every].format(from)}
              </span>
            )
          })}
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
