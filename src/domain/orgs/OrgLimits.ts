import { Context, Effect, Metric } from "effect"
import { LimitReached } from "../Errors.ts"

/** The limits that the administrator can set for one org, in the order of responses. */
export const orgLimitNames = [
  "projects",
  "keys",
  "endpoints",
  "schedules",
  "unfinishedJobs",
  "pendingDeliveries",
  "storedBytes",
] as const
export type OrgLimitName = (typeof orgLimitNames)[number]

/** A number for each limit of an org: the limits, or the usage. */
export type OrgAmounts = Readonly<Record<OrgLimitName, number>>
/** The limits that the administrator has set for an org. */
export type OrgLimitOverrides = Readonly<Partial<OrgAmounts>>

/** All limits of an org. `waitingClaims` applies to each replica. */
type LimitName = OrgLimitName | "waitingClaims"

interface Limit {
  /** The environment variable of the default. */
  readonly variable: `LIMIT_${string}`
  readonly defaultValue: number
  /** The counted thing, in the plural. */
  readonly unit: string
  /** What the org can do to get below the limit. */
  readonly remedy: string
}

const raise = (name: OrgLimitName) => `ask the administrator to raise limits.${name} of the org`

export const limits: Readonly<Record<LimitName, Limit>> = {
  projects: {
    variable: "LIMIT_PROJECTS",
    defaultValue: 10_000,
    unit: "projects",
    remedy: `To create another one, ${raise("projects")}`,
  },
  keys: {
    variable: "LIMIT_KEYS",
    defaultValue: 10_000,
    unit: "API keys",
    remedy: `Delete keys that nobody uses, or ${raise("keys")}`,
  },
  endpoints: {
    variable: "LIMIT_ENDPOINTS",
    defaultValue: 500,
    unit: "webhook endpoints",
    remedy: `Delete endpoints that nobody uses, or ${raise("endpoints")}`,
  },
  schedules: {
    variable: "LIMIT_SCHEDULES",
    defaultValue: 10_000,
    unit: "schedules",
    remedy: `Delete schedules that nobody uses, or ${raise("schedules")}`,
  },
  unfinishedJobs: {
    variable: "LIMIT_UNFINISHED_JOBS",
    defaultValue: 1_000_000,
    unit: "unfinished jobs",
    remedy: `Complete or fail jobs first, or ${raise("unfinishedJobs")}`,
  },
  pendingDeliveries: {
    variable: "LIMIT_PENDING_DELIVERIES",
    defaultValue: 5_000_000,
    unit: "pending deliveries",
    remedy: `Fix the endpoints that do not answer, or ${raise("pendingDeliveries")}`,
  },
  storedBytes: {
    variable: "LIMIT_STORED_BYTES",
    defaultValue: 10 * 1024 ** 3,
    unit: "stored bytes",
    remedy: `Wait until finished jobs are removed (RETENTION_DAYS), or ${raise("storedBytes")}`,
  },
  waitingClaims: {
    variable: "LIMIT_WAITING_CLAIMS",
    defaultValue: 1_000,
    unit: "waiting claims",
    remedy: "Wait for the answer of one, or claim with wait_seconds 0",
  },
}

export const limitNames = Object.keys(limits) as ReadonlyArray<LimitName>

/** The default of each limit. */
export type LimitValues = Readonly<Record<LimitName, number>>
export class DefaultLimits extends Context.Reference<LimitValues>("gatehouse/domain/OrgLimits/DefaultLimits", {
  defaultValue: () => Object.fromEntries(limitNames.map((name) => [name, limits[name].defaultValue])) as LimitValues,
}) {}

/** The limits of an org: its own, else the defaults. */
export const limitsOf = (defaults: LimitValues, overrides: OrgLimitOverrides): OrgAmounts =>
  Object.fromEntries(orgLimitNames.map((name) => [name, overrides[name] ?? defaults[name]])) as OrgAmounts

const counter = (name: LimitName) =>
  Metric.counter("gatehouse_limits_reached_total", {
    description: "How often an org reached a limit, by limit.",
    incremental: true,
    attributes: { limit: limits[name].variable },
  })
const counters = Object.fromEntries(limitNames.map((name) => [name, counter(name)])) as Record<
  LimitName,
  Metric.Counter<number>
>

/** Counts that an org reached a limit. */
export const countReached = (name: LimitName, times = 1) => Metric.update(counters[name], times)

/** Creates the series of every limit, so that each begins at 0. */
export const startCounting = Effect.forEach(limitNames, (name) => countReached(name, 0), { discard: true })

/** Fails with `LimitReached`, and counts it. */
export const limitReached = (name: LimitName, value: number): Effect.Effect<never, LimitReached> => {
  const { variable, unit, remedy } = limits[name]
  const where = name === "waitingClaims" ? " at this replica" : ""
  const error = `The org has reached its limit of ${value} ${unit}${where} (${variable}). ${remedy}.`
  return Effect.andThen(countReached(name), new LimitReached({ error }))
}
