import type { Load } from "./load.ts"
import { medianOf } from "./stats.ts"

export interface RoundOptions {
  readonly rounds: number
  /** The seconds of each measurement. */
  readonly seconds: number
  /** The seconds of load before the first round, on each subject. */
  readonly warmUp: number
  readonly say: (line: string) => void
}

/** The medians of a subject's rounds. */
export interface Compared extends Load {
  readonly rounds: ReadonlyArray<Load>
}

/**
 * Warms up every subject, then measures one after the other, round by round, so that changes of the machine affect all
 * alike.
 */
export const compare = async (
  subjects: Readonly<Record<string, (seconds: number) => Promise<Load>>>,
  { rounds, say, seconds, warmUp }: RoundOptions,
): Promise<Readonly<Record<string, Compared>>> => {
  const found = new Map(Object.keys(subjects).map((name) => [name, [] as Array<Load>]))
  for (const measure of Object.values(subjects)) await measure(warmUp)
  for (let round = 1; round <= rounds; round++) {
    for (const [name, measure] of Object.entries(subjects)) {
      const load = await measure(seconds)
      found.get(name)!.push(load)
      say(`round ${round}: ${name}: ${load.perSecond.toFixed(0)} a second, p99 ${load.p99.toFixed(1)} ms`)
    }
  }
  return Object.fromEntries([...found].map(([name, loads]) => [name, summary(loads)]))
}

const summary = (loads: ReadonlyArray<Load>): Compared => ({
  perSecond: medianOf(loads, (load) => load.perSecond),
  requests: medianOf(loads, (load) => load.requests),
  p50: medianOf(loads, (load) => load.p50),
  p99: medianOf(loads, (load) => load.p99),
  cpu: medianOf(loads, (load) => load.cpu),
  databaseCpu: medianOf(loads, (load) => load.databaseCpu),
  loader: medianOf(loads, (load) => load.loader),
  rounds: loads,
})
