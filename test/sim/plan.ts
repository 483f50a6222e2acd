import { Dice } from "./world.ts"
import { type OperationName, weights } from "./workload.ts"

/** An operation that a client begins at a time. What it does in detail follows from its own seed. */
export interface PlannedOperation {
  readonly at: number
  readonly tenant: number
  readonly kind: OperationName
  readonly seed: number
}

const faultKinds = [
  "crash",
  "pause",
  "clock step",
  "cut",
  "silence",
  "refuse",
  "cut at commit",
  "lose notifications",
  "slow database",
  "receiver",
  "issuer",
  "database clock step",
] as const
type FaultKind = (typeof faultKinds)[number]

/** Something that goes wrong at a time, for a while. */
export interface PlannedFault {
  readonly at: number
  readonly kind: FaultKind
  readonly millis: number
  readonly replica: number
  readonly seed: number
}

/** What a run does. It follows from the seed; a shrunk run has a part of it. */
export interface Plan {
  readonly seed: number
  readonly replicas: number
  readonly tenants: number
  /** How long operations begin and faults happen. Then everything must settle. */
  readonly millis: number
  readonly operations: ReadonlyArray<PlannedOperation>
  readonly faults: ReadonlyArray<PlannedFault>
}

/** How long each fault lasts at most, in milliseconds. */
const longest: Readonly<Record<FaultKind, number>> = {
  crash: 20_000,
  pause: 40_000,
  "clock step": 1,
  cut: 1,
  silence: 30_000,
  refuse: 15_000,
  "cut at commit": 20_000,
  "lose notifications": 60_000,
  "slow database": 30_000,
  receiver: 120_000,
  issuer: 60_000,
  "database clock step": 1,
}

const hour = 3_600_000
/** How long the time without operations after a busy time is at most, in milliseconds. */
const longestQuiets = [20_000, 300_000, hour]
/** Quiet times from which on ranges of events expire, which are kept for a day. */
const dailyQuiets = [22 * hour, 28 * hour] as const
/** What is due every minute, and would keep the replicas awake for days. */
const minutely: ReadonlySet<string> = new Set(["createSchedule", "createOrgs"])

/**
 * Makes the plan of a seed: busy times, each with a quiet time after it. Swarm testing: each run has some kinds of
 * operations and faults, and not others.
 *
 * @param minutes how long all busy times together are: one of these
 */
export const makePlan = (seed: number, minutes: ReadonlyArray<number> = [0.5, 0.75, 1, 2]): Plan => {
  const dice = new Dice(seed)
  const replicas = dice.pick([1, 2, 2, 3])
  const tenants = dice.pick([1, 2, 3])
  const busyMillis = dice.pick(minutes) * 60_000
  const isLong = dice.chance(0.25)
  const times = dice.pick(isLong ? [2, 3] : [1, 1, 2, 3])
  const longestQuiet = dice.pick(longestQuiets)
  const quiet = () => (isLong ? dice.int(...dailyQuiets) : dice.next() ** 2 * longestQuiet)
  let millis = 0
  const begins = Array.from({ length: times }, () => {
    const begin = millis
    millis += Math.ceil(busyMillis / times + quiet())
    return begin
  })
  const anyTime = () => Math.floor(dice.pick(begins) + (dice.next() * busyMillis) / times)
  const names = Object.keys(weights) as Array<OperationName>
  const used: Record<string, number> = {}
  for (const name of names)
    used[name] = dice.chance(0.25) || (isLong && minutely.has(name)) ? 0 : weights[name] * (0.3 + dice.next())
  // Half of the runs look closely at a few operations, which then meet each other.
  if (dice.chance(0.5)) for (let n = dice.int(1, 3); n > 0; n--) used[dice.pick(names)]! *= 8
  const perMinute = dice.pick([40, 100, 200])
  const operations = Array.from({ length: Math.ceil((busyMillis / 60_000) * perMinute) }, () => ({
    at: anyTime(),
    tenant: dice.int(0, tenants - 1),
    kind: dice.weighted(used) as OperationName,
    seed: dice.bits(),
  })).toSorted((one, other) => one.at - other.at)
  const kinds = dice.chance(0.15) ? [] : faultKinds.filter(() => dice.chance(0.4))
  const faults =
    kinds.length === 0
      ? []
      : Array.from({ length: dice.int(1, Math.ceil(busyMillis / 8_000)) }, () => {
          // Pauses find most, and there are many receivers.
          const often = dice.pick(["pause", "receiver"] as const)
          const kind = kinds.includes(often) && dice.chance(0.4) ? often : dice.pick(kinds)
          return {
            at: anyTime(),
            kind,
            millis: Math.ceil(dice.next() * longest[kind]),
            replica: dice.int(0, replicas - 1),
            seed: dice.bits(),
          }
        }).toSorted((one, other) => one.at - other.at)
  return { seed, replicas, tenants, millis, operations, faults }
}
