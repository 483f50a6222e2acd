/** What decides who receives the event of a job. */
export interface Routing {
  readonly callback_url: string | null
  readonly hasCallbackSecret: boolean
  readonly skip_callbacks: boolean
}

/** What decides whether an endpoint receives an event of its org. */
export interface Candidate {
  readonly id: string
  readonly active: boolean
}

/** One receiver of an event, and the state in which its delivery begins. */
export interface Receiver {
  /** `null`: the job's own callback. */
  readonly endpointId: string | null
  readonly state: "pending" | "skipped"
}

/** Which endpoints receive an event of their org: all of them; the delivery to an inactive one is `skipped`. */
export const endpointReceivers = (endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> =>
  endpoints.map(({ id, active }) => ({ endpointId: id, state: active ? "pending" : "skipped" }))

/**
 * Who receives the event of a finished job. The rules in their order: with `skip_callbacks` nobody; a callback with a url
 * and a secret alone; else the org's endpoints.
 */
export const receivers = (job: Routing, endpoints: ReadonlyArray<Candidate>): ReadonlyArray<Receiver> => {
  if (job.skip_callbacks) return []
  if (job.callback_url !== null && job.hasCallbackSecret) return [{ endpointId: null, state: "pending" }]
  return endpointReceivers(endpoints)
}
