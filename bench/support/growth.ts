import { atMost, type Bar, figure, type Table } from "./result.ts"
import { median, medianOf } from "./stats.ts"

/** The cost of an operation in one round, beside a table of some size. */
export interface Step {
  readonly perSecond: number
  /** CPU microseconds of the service and of its database. */
  readonly cpu: number
  readonly databaseCpu: number
}

/** The rounds of one operation, the smallest table first. */
export type Sizes = ReadonlyArray<{ readonly size: string; readonly rounds: ReadonlyArray<Step> }>

const total = ({ cpu, databaseCpu }: Step) => cpu + databaseCpu

/** The median growth of CPU time over the smallest table, in percent. */
const growthOf = (steps: ReadonlyArray<Step>, least: ReadonlyArray<Step>) =>
  (median(steps.map((step, round) => total(step) / total(least[round]!))) - 1) * 100

export const growthTable = (title: string, operations: Readonly<Record<string, Sizes>>): Table => ({
  title,
  columns: ["", "beside", "a second", "CPU µs", "PostgreSQL CPU µs", "growth"],
  rows: Object.entries(operations).flatMap(([name, sizes]) =>
    sizes.map(({ rounds, size }, at) => [
      name,
      size,
      figure(medianOf(rounds, (step) => step.perSecond)),
      figure(medianOf(rounds, (step) => step.cpu)),
      figure(medianOf(rounds, (step) => step.databaseCpu)),
      at === 0 ? "–" : `${growthOf(rounds, sizes[0]!.rounds).toFixed(1)} %`,
    ]),
  ),
})

export const growthBars = (operations: Readonly<Record<string, Sizes>>): ReadonlyArray<Bar> =>
  Object.entries(operations).map(([name, sizes]) =>
    atMost(`Growth: ${name}, beside ${sizes.at(-1)!.size}`, 10, growthOf(sizes.at(-1)!.rounds, sizes[0]!.rounds), " %"),
  )
