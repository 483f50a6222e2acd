import { isServiceEvent } from "./EventPatterns.ts"

/** The patterns of an endpoint without `event_types`. */
export const defaultPatterns: ReadonlyArray<string> = ["*"]

/**
 * All patterns that match an event type: `invoice.paid.eu` has itself, `invoice.paid.*`, `invoice.*` and `*`. An event of the
 * service's own has no `*`. An endpoint receives an event if it has one of the event's topics as a pattern.
 */
export const topicsOf = (type: string): ReadonlyArray<string> => {
  const segments = type.split(".")
  const below = segments.slice(1).map((_, n) => `${segments.slice(0, n + 1).join(".")}.*`)
  return [type, ...below.toReversed(), ...(isServiceEvent(type) ? [] : ["*"])]
}

/** Whether an endpoint with these patterns receives an event with these topics. SQL does the same with `&&`. */
export const receives = (patterns: ReadonlyArray<string> | null, topics: ReadonlyArray<string>) =>
  (patterns ?? defaultPatterns).some((pattern) => topics.includes(pattern))

/** The fields of a job that decide who receives its event. */
export interface Routing {
  readonly callback_url: string | null
  readonly hasCallbackSecret: boolean
  readonly skip_callbacks: boolean
}

/** An endpoint of the org whose patterns match the event. */
export interface Candidate {
  readonly id: string
  readonly active: boolean
}

/** A receiver of an event, and the first state of its delivery. */
export interface Receiver {
  /** `null` for the job's callback. */
  readonly endpointId: string | null
  readonly state: "pending" | "skipped"
}

/** The first state of a delivery to an active, or to an inactive endpoint. */
export const firstState = (isActive: boolean): Receiver["state"] => (isActive ? "pending" : "skipped")

/** Returns all endpoints whose patterns match as receivers. The delivery to an inactive endpoint is `skipped`. */
export const endpointReceivers = (endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> =>
  endpoints.map(({ id, active }) => ({ endpointId: id, state: firstState(active) }))

/**
 * The receivers of a finished job's event: nobody for a job with `skip_callbacks`; else only the callback when the job
 * has its URL and its secret; else the org's endpoints.
 */
export const receivers = (job: Routing, endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> => {
  if (job.skip_callbacks) return []
  if (job.callback_url !== null && job.hasCallbackSecret) return [{ endpointId: null, state: "pending" }]
  return endpointReceivers(endpoints)
}
