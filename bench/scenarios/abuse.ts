import { setTimeout as sleep } from "node:timers/promises"
import { Worker } from "node:worker_threads"
import { memoryOf } from "../support/cpu.ts"
import { folder, type Postgres, startPostgres } from "../support/postgres.ts"
import { answers } from "../support/process.ts"
import { atMost, type Bar, figure, type RunOptions, type Scenario, type Table } from "../support/result.ts"
import { scoped } from "../support/scope.ts"
import { makeTenant, startService, times } from "../support/service.ts"
import { median } from "../support/stats.ts"
import type { Statuses, Target } from "./abuse/client.ts"
import { type Noticed, startOther } from "./abuse/other.ts"
import { type Row, rows } from "./abuse/rows.ts"

interface Outcome {
  readonly row: string
  readonly alone: Noticed
  readonly beside: ReadonlyArray<Noticed>
  readonly after: Noticed
  readonly attacker: Statuses
  /** The peak in MiB. */
  readonly memory: number
  readonly survived: boolean
}

/** Attacks for some seconds while `watch` measures. */
const attack = async (
  row: Row,
  target: Target,
  seconds: number,
  watch: (during: () => Promise<unknown>) => Promise<Noticed>,
) => {
  const worker = new Worker(new URL("./abuse/attacker.ts", import.meta.url), {
    workerData: { attack: row.attack, target },
  })
  try {
    const noticed = await watch(() => sleep(seconds * 1_000))
    const statuses = await new Promise<Statuses>((resolve) => {
      worker.once("message", resolve).postMessage("stop")
    })
    return { noticed, statuses }
  } finally {
    await worker.terminate()
  }
}

let databases = 0

const measure = (postgres: Postgres, row: Row, environment: Readonly<Record<string, string>>, options: RunOptions) =>
  scoped(async (scope): Promise<Outcome> => {
    const url = await postgres.database(`abuse${databases++}`)
    const query = await postgres.connect(url)
    const service = await startService(scope, folder(scope), { DATABASE_URL: url, ADMIN_TOKEN: "", ...environment })
    const { watch } = await startOther(scope, service)
    const { key, orgId } = await makeTenant(service)
    const made = await row.prepare?.({ scope, service, query, orgId, key, quick: options.quick })
    await query("VACUUM ANALYZE")
    await times(options.quick ? 100 : 1_000, () => service.manage("/api/v0/keys/validate", { key }))
    await watch(() => sleep(options.quick ? 2_000 : 5_000))
    const alone = await watch(() => sleep(options.seconds * 2_000))
    const target = { url: service.url, key, endpoints: made ?? [] }
    const beside: Array<Noticed> = []
    const attacker: Statuses = {}
    for (let round = 1; round <= options.rounds; round++) {
      const { noticed, statuses } = await attack(row, target, options.seconds, watch)
      beside.push(noticed)
      for (const [status, count] of Object.entries(statuses)) attacker[status] = (attacker[status] ?? 0) + count
      const { now, peak } = memoryOf(service.pid)
      options.say(
        `${row.name}, round ${round}: ${figure(peak, " MiB")} at most, ${figure(now)} now, health ${figure(noticed.health)} ms, ` +
          `validate ${figure(alone.validate)} → ${figure(noticed.validate)}, create ${figure(alone.create)} → ${figure(noticed.create)}, ` +
          `event ${figure(alone.event)} → ${figure(noticed.event)} ms`,
      )
    }
    const after = await watch(() => sleep(options.seconds * 1_000))
    const survived = await answers(`${service.url}/healthz`)()
    return { row: row.name, alone, beside, after, attacker, memory: memoryOf(service.pid).peak, survived }
  })

const statusText = (statuses: Statuses) =>
  Object.entries(statuses)
    .map(([status, count]) => `${status}: ${count}`)
    .join(", ")

const longest = (outcome: Outcome) => Math.max(...outcome.beside.map(({ health }) => health))
const merged = ({ after, beside }: Outcome): Statuses => {
  const all: Statuses = {}
  for (const { statuses } of [...beside, after]) {
    for (const [status, count] of Object.entries(statuses)) all[status] = (all[status] ?? 0) + count
  }
  return all
}

const operations = ["validate", "create", "event"] as const
const besideOf = (outcome: Outcome, operation: (typeof operations)[number]) =>
  median(outcome.beside.map((noticed) => noticed[operation]))

const table = (title: string, outcomes: ReadonlyArray<Outcome>): Table => ({
  title,
  columns: [
    "",
    "MiB",
    "/healthz ms",
    "validate p99 ms",
    "create p99 ms",
    "event p99 ms",
    "attacker got",
    "the other got",
  ],
  rows: outcomes.map((outcome) => [
    outcome.row,
    figure(outcome.memory),
    figure(longest(outcome)),
    ...operations.map((operation) =>
      [outcome.alone[operation], besideOf(outcome, operation), outcome.after[operation]]
        .map((ms) => figure(ms))
        .join(" → "),
    ),
    statusText(outcome.attacker),
    statusText(merged(outcome)),
  ]),
})

const bars = (outcome: Outcome): ReadonlyArray<Bar> => {
  const faults = Object.keys(outcome.attacker).filter((status) => status.startsWith("5") && status !== "503")
  const others = Object.keys(merged(outcome)).filter((status) => status !== "200")
  return [
    atMost(`${outcome.row}: memory`, 400, outcome.memory, " MiB"),
    atMost(`${outcome.row}: /healthz`, 500, longest(outcome), " ms"),
    ...operations.map((operation) =>
      atMost(
        `${outcome.row}: another org's ${operation} p99 ÷ without`,
        3,
        besideOf(outcome, operation) / outcome.alone[operation],
      ),
    ),
    {
      what: `${outcome.row}: statuses`,
      wanted: "the attacker no 5xx but 503 with Retry-After, the other 200",
      found: [...faults, ...others].join(", ") || "so",
      met: faults.length + others.length === 0,
    },
  ]
}

/**
 * Requests without a credential or with one project key that once stopped the service, and their effect on another org.
 */
export const abuse: Scenario = {
  name: "abuse",
  title: "Requests that cost much",
  about:
    "One stranger or one project key sends what costs much, in waves, the next a second after the last began. Beside it " +
    "another org validates a key, creates a job and finishes one every 50 ms, and /healthz is asked as often. Each row has " +
    "a process and a database of its own. The other org's times are the 99th percentiles before, beside (the median of " +
    "the rounds) and after.",
  quick: { rounds: 1, seconds: 4 },
  run: async (scope, options) => {
    const only = process.env["ABUSE_ROWS"]?.split(",")
    const chosen = rows.filter((row) => only === undefined || only.includes(row.attack))
    const postgres = await startPostgres(scope)
    const outcomes: Array<Outcome> = []
    for (const row of chosen) outcomes.push(await measure(postgres, row, {}, options))
    options.say("Again with a heap of 256 MiB")
    const heap = { NODE_OPTIONS: "--max-old-space-size=256" }
    const small: Array<Outcome> = []
    for (const row of chosen) small.push(await measure(postgres, row, heap, { ...options, rounds: 1 }))
    return {
      tables: [table("Attacks", outcomes), table("Attacks on a process with a heap of 256 MiB", small)],
      bars: [
        ...outcomes.flatMap(bars),
        ...small.map(({ row, survived }) => ({
          what: `${row}: with a heap of 256 MiB`,
          wanted: "survived",
          found: survived ? "survived" : "ended",
          met: survived,
        })),
      ],
      notes: [
        "Names of rows are of waves. ABUSE_ROWS names the attacks of bench/scenarios/abuse/attacks.ts to run alone.",
      ],
    }
  },
}
