import type { DateTime } from "effect"
import { Duration } from "effect"
import type { EventType } from "./Delivery.ts"
import type { AttemptOutcome } from "./WebhookSender.ts"

/** A finished job, for its event. Values are JSON already. */
export interface FinishedJob {
  readonly job_id: string
  readonly workflow: string
  readonly deployment_id: string | null
  readonly status: "completed" | "failed"
  readonly result: unknown
  readonly error: string | null
  readonly mapped_stack: unknown
}

export const eventType = (status: FinishedJob["status"]): EventType => `job.${status}`

/** The body of an event: the nine fields, always all nine. Made once; these very bytes are signed, sent and resent. */
export const eventBody = (job: FinishedJob, nonce: string): string =>
  JSON.stringify({
    event: eventType(job.status),
    job_id: job.job_id,
    nonce,
    workflow: job.workflow,
    deployment_id: job.deployment_id,
    status: job.status,
    result: job.result ?? null,
    error: job.error,
    mapped_stack: job.mapped_stack ?? null,
  })

/** A delivery that a worker took up, under a lease that only this claim may record over. */
export interface ClaimedDelivery {
  readonly deliveryId: string
  readonly claimId: string
  readonly orgId: string
  /** `null`: the job's own callback. */
  readonly endpointId: string | null
  /** What shares a cap on attempts in flight: an endpoint, or the origin of a tenant's callbacks. */
  readonly lane: string
  readonly url: string
  /** As stored, with the id that each is encrypted for; the current one first. */
  readonly secrets: ReadonlyArray<{ readonly stored: string; readonly owner: string }>
  readonly event: EventType
  readonly body: string
  /** Attempts made so far, and those since the delivery was last started over. */
  readonly attempts: number
  readonly tries: number
  /** Since when the endpoint has failed without a success; `null` when its last attempt succeeded. */
  readonly failingSince: DateTime.Utc | null
  /** How many attempts of the lane have failed since its last success; no more are counted than it takes to deactivate. */
  readonly failures: number
}

/** What becomes of a delivery after an attempt. */
export type Verdict =
  | { readonly _tag: "Delivered" }
  /** To be tried again after the wait. */
  | { readonly _tag: "Retry"; readonly wait: Duration.Duration }
  /** No attempt is left. */
  | { readonly _tag: "Exhausted" }
  /** 410, or five days without a success: the endpoint is deactivated with it. */
  | { readonly _tag: "Deactivate" }

/** How long an endpoint may fail without one success before it is deactivated. */
export const maxFailing = Duration.days(5)
/** How many attempts must have failed in that time: one failure long ago says nothing of the days since. */
export const minFailures = 5

/** How long an endpoint has been failing without one success, and how many attempts failed in that time. */
export interface Failing {
  readonly duration: Duration.Duration
  readonly failures: number
}

/** Whether an endpoint has failed for so long that it is deactivated. */
const isDead = ({ duration, failures }: Failing) =>
  failures >= minFailures && Duration.isGreaterThanOrEqualTo(duration, maxFailing)

/** How many lanes the callbacks of an org have: those of many origins share them. */
const callbackLanes = 128

/** The lane of an org's callbacks to an origin. It has a space after the id of the org, which no endpoint's lane has. */
export const callbackLane = (orgId: string, url: string) => {
  // FNV-1a, 32 bits: spreads origins evenly, and is the same at every replica.
  let hash = 0x811c9dc5
  for (const char of new URL(url).origin) hash = Math.imul(hash ^ char.codePointAt(0)!, 0x01000193) >>> 0
  return `${orgId} ${hash % callbackLanes}`
}

/** Whether a receiver took what was sent: a whole answer with a 2xx. */
export const isDelivered = ({ status, failure }: AttemptOutcome) =>
  failure === null && status !== null && status >= 200 && status < 300

/** Whether an attempt tells of its receiver: one that could not be signed never reached it, and the fault is ours. */
export const reachedOut = ({ failure }: AttemptOutcome) => failure?.kind !== "secret"

/**
 * What becomes of a delivery: 2xx is delivered, 410 (RFC 9110, 15.5.11) and five days of failures deactivate the endpoint,
 * everything else is tried again after the schedule's wait, which a `Retry-After` on 429 and 503 can lengthen.
 *
 * @param wait the schedule's wait after this try; `undefined` when it was the last
 * @param retryAfter what the answer's Retry-After asked for
 * @param failing how the endpoint has been failing, this attempt included; `undefined` for callbacks and for endpoints that have not
 */
export const judge = (
  outcome: AttemptOutcome,
  wait: Duration.Duration | undefined,
  retryAfter: Duration.Duration | undefined,
  failing: Failing | undefined,
): Verdict => {
  const { status, failure } = outcome
  if (isDelivered(outcome)) return { _tag: "Delivered" }
  if (status === 410 && failure === null) return { _tag: "Deactivate" }
  if (reachedOut(outcome) && failing !== undefined && isDead(failing)) {
    return { _tag: "Deactivate" }
  }
  if (wait === undefined) return { _tag: "Exhausted" }
  const lengthens = retryAfter !== undefined && (status === 429 || status === 503)
  return { _tag: "Retry", wait: lengthens ? Duration.max(wait, retryAfter) : wait }
}
