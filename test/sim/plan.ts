import { Dice } from "./world.ts"
import { type Habits, type OperationName, usualHabits, weights } from "./workload.ts"

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
  "at a statement",
] as const
export type FaultKind = (typeof faultKinds)[number]

/** Statements at which something goes wrong on purpose: what was read or written is known to nobody yet. */
export const moments = {
  commit: /^COMMIT$/,
  keys: /FROM api_keys/,
  lookUp: /FROM api_keys WHERE hash = ANY/,
  counters: /key_counters/,
  records: /INSERT INTO idempotency_keys/,
  events: /INSERT INTO events/,
  queue: /pending_deliveries/,
  attempts: /delivery_attempts/,
  jobs: /FROM jobs/,
  limits: /UPDATE workflows/,
  ended: /INSERT INTO finished_jobs/,
  schedules: /job_schedules/,
  uniques: /job_keys/,
  sweeps: /FROM sweeps/,
  expired: /kind = 'deliver' AND event_id|DETACH PARTITION|DROP TABLE/,
}
type Moment = keyof typeof moments

/** What goes wrong at a statement. */
export const traps = ["pause", "crash", "cut", "silence", "late answer", "late answer"] as const

/** Something that goes wrong for a while. */
export interface Trouble {
  readonly kind: FaultKind
  readonly millis: number
  readonly seed: number
  /** When it happens, if it happens at a statement; and what, if the dice do not say it. */
  readonly moment?: Moment
  readonly trap?: (typeof traps)[number]
}

/** Something that goes wrong at a time. */
export interface PlannedFault extends Trouble {
  readonly at: number
  readonly replica: number
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
  readonly habits: Habits
  /** How many days the service keeps records. */
  readonly retentionDays: 1 | 2
  /** How much later it is with each look of the database at its clock, in milliseconds; without it, the dice say. */
  readonly lookMillis?: number
}

/** A part of the service at which a seed looks closely: few operations and faults, which then meet each other. */
interface Corner {
  /** How often each operation comes; the others do not. */
  readonly operations: Partial<Readonly<Record<OperationName, number>>>
  /** How often each fault comes. */
  readonly faults: Partial<Readonly<Record<FaultKind, number>>>
  /** The mean time between two faults, in milliseconds. */
  readonly faultMillis: number
  readonly replicas?: ReadonlyArray<number>
  readonly habits?: Partial<Habits>
  readonly moments?: ReadonlyArray<Moment>
  /** How many of its faults last longer than a lease of deliveries: a share of 1. */
  readonly lasting?: number
  /** How many of its runs have days without requests: a share of 1. Else a few have. */
  readonly long?: number
  /** How many of its operations begin in a minute, where each is many requests. */
  readonly perMinute?: ReadonlyArray<number>
}

/** The faults that keep a replica from news. */
const deafness = { silence: 3, pause: 3, refuse: 2, cut: 2, "lose notifications": 3, "slow database": 3 }

export const corners = {
  keys: {
    operations: {
      createKey: 3,
      validateKey: 3,
      updateKey: 2,
      rotateKey: 2,
      revokeKey: 5,
      outOfTouch: 3,
      useSession: 1,
      changeRole: 2,
      importKeys: 2,
      exchange: 2,
    },
    faults: { ...deafness, crash: 1, "at a statement": 3 },
    moments: ["keys", "keys", "commit"],
    faultMillis: 4_000,
    replicas: [2, 2, 3],
  },
  owners: {
    operations: {
      createProject: 2,
      deleteProject: 5,
      createOrgs: 3,
      deleteOrg: 5,
      endWhileSending: 3,
      validateKey: 2,
    },
    faults: { ...deafness, "slow database": 6, receiver: 3, crash: 1, "at a statement": 2 },
    moments: ["keys", "events", "jobs", "commit"],
    faultMillis: 8_000,
    replicas: [2, 2, 3],
    habits: { ordered: 0.6, limited: 0.3, batches: 0.6, slow: 0.4 },
  },
  orgs: {
    operations: { publishStrictly: 5, limitOrg: 6, retryAtLimit: 2, alertOnGone: 1, createKey: 1, readAudit: 0.3 },
    faults: { ...deafness, crash: 1, "at a statement": 3, "cut at commit": 1 },
    moments: ["commit", "events", "jobs", "keys"],
    faultMillis: 10_000,
    replicas: [2, 2, 3],
    perMinute: [10, 20],
  },
  limits: {
    operations: {
      createKey: 2,
      validateKey: 4,
      changeLimits: 3,
      rotateKey: 2,
      deleteKey: 1,
      exhaust: 6,
      addCredits: 3,
    },
    faults: { pause: 2, crash: 1, "slow database": 2, "cut at commit": 2, "at a statement": 2 },
    moments: ["counters", "commit"],
    faultMillis: 15_000,
  },
  once: {
    operations: {
      createKey: 3,
      createProject: 2,
      createEndpoint: 2,
      publish: 4,
      createJob: 4,
      createJobs: 2,
      repeat: 3,
    },
    faults: { crash: 1, pause: 1, "cut at commit": 4, "slow database": 2, "at a statement": 6 },
    moments: ["records", "commit", "events"],
    faultMillis: 5_000,
    replicas: [2, 2, 3],
    habits: { twins: 0.5 },
    long: 0.25,
  },
  jobs: {
    operations: {
      createEndpoint: 1,
      createJob: 4,
      work: 6,
      lateWorker: 4,
      lastLease: 4,
      duel: 8,
      cancelJob: 1,
      lists: 0.5,
    },
    faults: { pause: 2, crash: 1, "slow database": 4, "cut at commit": 2, "clock step": 1, "at a statement": 4 },
    moments: ["jobs", "ended", "commit"],
    faultMillis: 7_000,
    replicas: [2, 2, 3],
    long: 0.25,
  },
  bulk: {
    operations: {
      createJobs: 2,
      sweepJobs: 6,
      uniqueJobs: 6,
      uniqueWithin: 2,
      uniqueQueued: 3,
      claimInTurn: 2,
      retryJob: 2,
      work: 3,
      cancelJob: 0.5,
      createEndpoint: 0.5,
    },
    faults: { pause: 2, crash: 1, "slow database": 3, "cut at commit": 2, "clock step": 0.5, "at a statement": 4 },
    moments: ["jobs", "ended", "uniques", "sweeps", "commit"],
    faultMillis: 7_000,
    replicas: [2, 2, 3],
    long: 0.25,
  },
  schedules: {
    operations: { createSchedule: 6, deleteSchedule: 1, runByHand: 3, work: 6, createJob: 1 },
    faults: { pause: 1, crash: 1, "clock step": 1, "cut at commit": 1, refuse: 1, "at a statement": 1 },
    moments: ["schedules", "commit"],
    faultMillis: 60_000,
  },
  ordered: {
    operations: { createEndpoint: 1, publish: 12, createJob: 1, work: 1, lists: 0.2 },
    faults: { receiver: 6, pause: 2, crash: 1, silence: 1, "cut at commit": 1, "at a statement": 2 },
    moments: ["queue", "attempts"],
    faultMillis: 10_000,
    habits: { ordered: 1, batches: 0.5, failing: 0.1 },
    lasting: 0.2,
  },
  workflows: {
    operations: { limitWorkflow: 6, policies: 6, createJob: 1, cancelJob: 1 },
    faults: { pause: 2, crash: 2, "slow database": 3, "cut at commit": 1, silence: 1, "at a statement": 3 },
    moments: ["jobs", "limits", "commit"],
    faultMillis: 8_000,
    replicas: [2, 2, 3],
    perMinute: [12, 25],
  },
  deliveries: {
    operations: {
      createEndpoint: 2,
      publish: 12,
      createJob: 2,
      work: 2,
      retryDelivery: 1,
      recover: 0.5,
      lateRecord: 1,
    },
    faults: { receiver: 10, pause: 3, crash: 1, silence: 1, refuse: 1, "cut at commit": 1, "at a statement": 2 },
    moments: ["queue", "attempts", "events"],
    faultMillis: 4_000,
    habits: { batches: 0.5, failing: 0.15 },
    lasting: 0.3,
  },
  endpoints: {
    operations: { createEndpoint: 3, updateEndpoint: 3, deleteEndpoint: 1, publish: 9, recover: 1, resend: 2 },
    faults: { receiver: 10, "slow database": 2, pause: 1, crash: 1, "at a statement": 1 },
    moments: ["queue", "attempts"],
    faultMillis: 4_000,
    habits: { batches: 0.5, failing: 0.1, narrow: 0.4 },
  },
  retention: {
    operations: {
      createEndpoint: 2,
      updateEndpoint: 1,
      publish: 6,
      createJob: 2,
      createJobs: 1,
      work: 3,
      sweepJobs: 1,
      cancelJob: 1,
      retryJob: 1,
      retryDelivery: 2,
      recover: 4,
      resend: 3,
      repeat: 2,
    },
    faults: { receiver: 6, pause: 2, crash: 1, "slow database": 2, "cut at commit": 1, "at a statement": 4 },
    moments: ["expired", "queue", "sweeps", "commit"],
    faultMillis: 6_000,
    long: 1,
  },
  rates: {
    operations: { createEndpoint: 1, publish: 12 },
    faults: { receiver: 1, crash: 1, pause: 1 },
    faultMillis: 60_000,
    habits: { limited: 0.9, batches: 0.4, failing: 0.01 },
  },
  deployments: {
    operations: {
      register: 8,
      promote: 4,
      portal: 3,
      signInPeople: 3,
      storeDocs: 3,
      createProject: 1,
      deleteProject: 1,
      useSession: 1,
      createKey: 1,
    },
    faults: { issuer: 1, pause: 2, crash: 1, "cut at commit": 2, "slow database": 2, "at a statement": 3 },
    faultMillis: 8_000,
    replicas: [2, 2, 3],
  },
} as const satisfies Readonly<Record<string, Corner>>
export type CornerName = keyof typeof corners

/** Clocks step in every corner, now and then. */
const steps = { "clock step": 0.3, "database clock step": 0.2 }

/** What a seed looks at: in a quarter of the seeds everything, else a corner. */
export const cornerOf = (seed: number): CornerName | undefined => {
  const dice = new Dice(seed + 2 ** 31)
  return dice.chance(0.25) ? undefined : dice.pick(Object.keys(corners) as Array<CornerName>)
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
  "at a statement": 40_000,
}

const hour = 3_600_000
/** How long the time without operations after a busy time is at most, in milliseconds. */
const longestQuiets = [20_000, 300_000, hour]
/** Quiet times from which on ranges of events expire, which are kept for a day. */
const dailyQuiets = [22 * hour, 28 * hour] as const
/** What is due every minute, and would keep the replicas awake for days. */
const minutely: ReadonlySet<string> = new Set(["createSchedule", "createOrgs"])

/**
 * Makes the plan of a seed: busy times, each with a quiet time after it. Swarm testing (Groce and others, 2012): each
 * run has some kinds of operations and faults, and not others.
 *
 * @param minutes how long all busy times together are: one of these
 */
export const makePlan = (seed: number, minutes: ReadonlyArray<number> = [0.5, 0.75, 1, 2]): Plan => {
  const dice = new Dice(seed)
  const name = cornerOf(seed)
  const corner: Corner | undefined = name === undefined ? undefined : corners[name]
  const replicas = dice.pick(corner?.replicas ?? [1, 2, 2, 3])
  const tenants = dice.pick([1, 2, 3])
  const busyMillis = dice.pick(minutes) * 60_000 * (corner === undefined ? 1 : 0.6)
  const isLong = dice.chance(corner === undefined ? 0.25 : (corner.long ?? 0.06))
  const times = dice.pick(isLong ? [2, 3] : [1, 1, 2, 3])
  const longestQuiet = dice.pick(longestQuiets)
  const quiet = () => (isLong ? dice.int(...dailyQuiets) : dice.next() ** 2 * longestQuiet)
  let millis = 0
  const begins = Array.from({ length: times }, () => {
    const begin = millis
    millis += Math.ceil(busyMillis / times + quiet())
    return begin
  })
  // After a day the replicas have much to do at once.
  const anyTime = () =>
    Math.floor(
      dice.pick(begins) + (isLong && dice.chance(0.3) ? dice.next() * 3_000 : (dice.next() * busyMillis) / times),
    )
  const used = usedOperations(dice, corner, isLong)
  // A corner has what it needs in less time.
  const perMinute = dice.pick(corner === undefined ? [40, 100, 200] : (corner.perMinute ?? [60, 120, 200]))
  const operations = Array.from({ length: Math.ceil((busyMillis / 60_000) * perMinute) }, () => ({
    at: anyTime(),
    tenant: dice.int(0, tenants - 1),
    kind: dice.weighted(used) as OperationName,
    seed: dice.bits(),
  })).toSorted((one, other) => one.at - other.at)
  const kinds = usedFaults(dice, corner)
  const faultMillis = (corner?.faultMillis ?? 16_000) / 2
  const faults =
    Object.keys(kinds).length === 0
      ? []
      : Array.from({ length: dice.int(1, Math.ceil(busyMillis / faultMillis)) }, () => {
          const kind = dice.weighted(kinds) as FaultKind
          const times = dice.chance(corner?.lasting ?? 0.1) ? 2.5 : 1
          return {
            at: anyTime(),
            kind,
            millis: Math.ceil(dice.next() * longest[kind] * times),
            replica: dice.int(0, replicas - 1),
            seed: dice.bits(),
            moment: dice.pick(corner?.moments ?? (Object.keys(moments) as Array<Moment>)),
          }
        }).toSorted((one, other) => one.at - other.at)
  const habits = { ...usualHabits, ...corner?.habits }
  const retentionDays = isLong ? dice.pick([1, 2] as const) : 1
  return { seed, replicas, tenants, millis, operations, faults, habits, retentionDays }
}

/** How often each operation comes in a run. */
const usedOperations = (dice: Dice, corner: Corner | undefined, isLong: boolean) => {
  const all: Readonly<Record<string, number>> = corner?.operations ?? weights
  const used: Record<string, number> = {}
  for (const [name, weight] of Object.entries(all)) {
    const isLeftOut = dice.chance(corner === undefined ? 0.25 : 0.1)
    used[name] = isLeftOut || (isLong && minutely.has(name)) ? 0 : weight * (0.3 + dice.next())
  }
  // Many runs look closely at a few operations, which then meet each other.
  const names = Object.keys(used)
  if (dice.chance(0.4)) for (let n = dice.int(1, 3); n > 0; n--) used[dice.pick(names)]! *= corner === undefined ? 8 : 3
  // None may be left.
  if (Object.values(used).every((weight) => weight === 0)) used[names[0]!] = 1
  return used
}

/** How often each fault comes in a run. */
const usedFaults = (dice: Dice, corner: Corner | undefined): Readonly<Record<string, number>> => {
  if (dice.chance(0.15)) return {}
  // Pauses find most, and there are many receivers.
  const all: Readonly<Record<string, number>> =
    (corner === undefined ? undefined : { ...steps, ...corner.faults }) ??
    Object.fromEntries(faultKinds.map((kind) => [kind, kind === "pause" || kind === "receiver" ? 3 : 1]))
  return Object.fromEntries(
    Object.entries(all)
      .filter(() => dice.chance(corner === undefined ? 0.4 : 0.6))
      .map(([kind, weight]) => [kind, weight * (0.3 + dice.next())]),
  )
}
