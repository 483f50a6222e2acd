import { Duration } from "effect"
import type { AttemptOutcome } from "./WebhookSender.ts"

/** The decision about a delivery after an attempt. */
export type RetryDecision =
  | { readonly _tag: "Delivered" }
  /** The next attempt follows after the wait. */
  | { readonly _tag: "Retry"; readonly wait: Duration.Duration }
  /** No attempt is left. */
  | { readonly _tag: "Exhausted" }
  /** The delivery fails and its endpoint is deactivated: after a 410, or after five days without a success. */
  | { readonly _tag: "Deactivate" }

/** How long an endpoint may fail without a success before it is deactivated. */
const maxFailingTime = Duration.days(5)
/** The failed attempts needed to deactivate an endpoint: a single old failure does not prove that it still fails. */
export const minFailuresToDeactivate = 5

/** How long an endpoint has failed without a success, and its failed attempts in that time. */
export interface Failing {
  readonly duration: Duration.Duration
  readonly failures: number
}

const failsTooLong = ({ duration, failures }: Failing) =>
  failures >= minFailuresToDeactivate && Duration.isGreaterThanOrEqualTo(duration, maxFailingTime)

/** Whether the receiver accepted the delivery: a complete response with a 2xx status. */
export const isDelivered = ({ status, failure }: AttemptOutcome) =>
  failure === null && status !== null && status >= 200 && status < 300

/** Whether a request was sent. Without a readable secret none is, and the failure says nothing about the receiver. */
export const wasSent = ({ failure }: AttemptOutcome) => failure?.kind !== "secret"

/**
 * Decides about a delivery after an attempt. A 2xx delivers it. A 410 (RFC 9110, 15.5.11) or five days of failures
 * deactivate the endpoint. Any other outcome is a retry after the schedule's wait, which `Retry-After` of a 429 or 503
 * can lengthen.
 *
 * @param wait the schedule's wait before the next attempt; `undefined` after the last attempt
 * @param retryAfter the response's `Retry-After`
 * @param failing the endpoint's failures including this attempt; `undefined` for a callback, and for an endpoint whose
 *   last attempt succeeded
 */
export const decideRetry = (
  outcome: AttemptOutcome,
  wait: Duration.Duration | undefined,
  retryAfter: Duration.Duration | undefined,
  failing: Failing | undefined,
): RetryDecision => {
  const { status, failure } = outcome
  if (isDelivered(outcome)) return { _tag: "Delivered" }
  if (status === 410 && failure === null) return { _tag: "Deactivate" }
  if (wasSent(outcome) && failing !== undefined && failsTooLong(failing)) return { _tag: "Deactivate" }
  if (wait === undefined) return { _tag: "Exhausted" }
  const lengthens = retryAfter !== undefined && (status === 429 || status === 503)
  return { _tag: "Retry", wait: lengthens ? Duration.max(wait, retryAfter) : wait }
}
