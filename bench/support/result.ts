import type { Compared } from "./rounds.ts"
import type { Scope } from "./scope.ts"

/** The options of a run. */
export interface RunOptions {
  /** A smaller run, within two minutes in total. */
  readonly quick: boolean
  readonly rounds: number
  /** The seconds of a measurement, and of the load before the first. */
  readonly seconds: number
  readonly warmUp: number
  /** The folder of a checkout of another commit, with its dependencies installed, to measure beside this one. */
  readonly other: string | undefined
  /** Prints progress. */
  readonly say: (line: string) => void
}

/** A table that is printed and written into the document. */
export interface Table {
  readonly title: string
  readonly columns: ReadonlyArray<string>
  readonly rows: ReadonlyArray<ReadonlyArray<string>>
}

/** A target, and whether it was reached. */
export interface Bar {
  readonly what: string
  readonly wanted: string
  readonly found: string
  readonly met: boolean
}

export interface Found {
  readonly tables: ReadonlyArray<Table>
  readonly bars: ReadonlyArray<Bar>
  /** What a reader must know to understand the figures. */
  readonly notes: ReadonlyArray<string>
}

/** One thing to measure, with its name on the command line. */
export interface Scenario {
  readonly name: string
  readonly title: string
  /** A sentence or two: what is done, how often, by whom. */
  readonly about: string
  /** The rounds and seconds of a quick run, where it needs fewer than three rounds or two seconds. */
  readonly quick?: { readonly rounds?: number; readonly seconds?: number }
  readonly run: (scope: Scope, options: RunOptions) => Promise<Found>
}

/** A figure with about three digits; a dash for a missing one. */
export const figure = (value: number, unit = ""): string => {
  if (!Number.isFinite(value)) return "–"
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + unit
}

/** Formats a count. */
export const amount = (value: number): string => value.toLocaleString("en-US")

export const atLeast = (what: string, limit: number, value: number, unit = ""): Bar => ({
  what,
  wanted: `at least ${figure(limit, unit)}`,
  found: figure(value, unit),
  met: value >= limit,
})

export const atMost = (what: string, limit: number, value: number, unit = ""): Bar => ({
  what,
  wanted: `at most ${figure(limit, unit)}`,
  found: figure(value, unit),
  met: value <= limit,
})

/** The table of loads: rates, times, CPU, and each rate as a multiple of the rate of one of them. */
export const loadTable = (title: string, found: Readonly<Record<string, Compared>>, base: string): Table => ({
  title,
  columns: ["", "a second", `× ${base}`, "p50 ms", "p99 ms", "CPU µs", "PostgreSQL CPU µs", "loader's core"],
  rows: Object.entries(found).map(([name, load]) => [
    name,
    figure(load.perSecond),
    figure(load.perSecond / found[base]!.perSecond),
    figure(load.p50),
    figure(load.p99),
    figure(load.cpu),
    figure(load.databaseCpu),
    `${(load.loader * 100).toFixed(0)} %`,
  ]),
})
