import { Cause, Context, Duration, Effect, Predicate, Schedule } from "effect"
import type { AttemptOutcome } from "./WebhookSender.ts"

/** The decision about a delivery after an attempt. */
export type RetryDecision =
  | { readonly _tag: "Delivered" }
  /** The next attempt follows after the wait. */
  | { readonly _tag: "Retry"; readonly wait: Duration.Duration }
  /** No attempt is left. */
  | { readonly _tag: "Exhausted" }
  /**
   * The delivery fails and its endpoint is deactivated: after a 410 (gone), or after at least five failed attempts and
   * five days without a success (failing).
   */
  | { readonly _tag: "Deactivate"; readonly reason: "gone" | "failing" }

/** The state of a delivery after a decision. */
export const stateAfter = {
  Delivered: "delivered",
  Retry: "pending",
  Exhausted: "failed",
  Deactivate: "failed",
} as const satisfies Record<RetryDecision["_tag"], string>

/** How long an endpoint may fail without a success before it is deactivated. */
const maxFailingTime = Duration.days(5)
/** The failed attempts needed to deactivate an endpoint: a single old failure does not prove that it still fails. */
export const minFailuresToDeactivate = 5

/** How long an endpoint has failed without a success, and its failed attempts in that time. */
interface Failing {
  readonly duration: Duration.Duration
  readonly failures: number
}

const failsTooLong = ({ duration, failures }: Failing) =>
  failures >= minFailuresToDeactivate && Duration.isGreaterThanOrEqualTo(duration, maxFailingTime)

/** Whether the receiver accepted the delivery: a complete response with a 2xx status. */
export const isDelivered = ({ status, failure }: AttemptOutcome) =>
  failure === null && status !== null && status >= 200 && status < 300

/**
 * Whether an outcome counts for or against the receiver. A secret that cannot be read is this server's fault. A token
 * that cannot be fetched counts against the receiver, although no request was sent to it.
 */
export const isAboutReceiver = ({ failure }: AttemptOutcome) => failure?.kind !== "secret"

/**
 * Decides about a delivery after an attempt. A 2xx delivers it. A 410 (RFC 9110, 15.5.11) ends it, and like five days
 * of failures deactivates the endpoint; a callback has none. Any other outcome is a retry after the schedule's wait,
 * which `Retry-After` of a 429 or 503 can lengthen.
 *
 * @param wait the schedule's wait before the next attempt; `undefined` after the last attempt
 * @param retryAfter the response's `Retry-After`
 * @param failing the endpoint's failures including this attempt; `undefined` for a callback, and for an endpoint whose
 *   last attempt succeeded
 * @param isCallback whether the receiver is a URL of one job, and no endpoint
 */
export const decideRetry = (
  outcome: AttemptOutcome,
  wait: Duration.Duration | undefined,
  retryAfter: Duration.Duration | undefined,
  failing: Failing | undefined,
  isCallback = false,
): RetryDecision => {
  const { status, failure } = outcome
  if (isDelivered(outcome)) return { _tag: "Delivered" }
  if (status === 410 && failure === null) {
    return isCallback ? { _tag: "Exhausted" } : { _tag: "Deactivate", reason: "gone" }
  }
  if (isAboutReceiver(outcome) && failing !== undefined && failsTooLong(failing)) {
    return { _tag: "Deactivate", reason: "failing" }
  }
  if (wait === undefined) return { _tag: "Exhausted" }
  const lengthens = retryAfter !== undefined && (status === 429 || status === 503)
  return { _tag: "Retry", wait: lengthens ? Duration.max(wait, retryAfter) : wait }
}

/** The waits before each retry: ten attempts over a little more than three days. */
export const defaultDelays: ReadonlyArray<Duration.Duration> = [
  Duration.seconds(5),
  Duration.minutes(5),
  Duration.minutes(30),
  Duration.hours(2),
  Duration.hours(5),
  Duration.hours(10),
  Duration.hours(14),
  Duration.hours(20),
  Duration.hours(24),
]

/** A schedule that retries after these delays, each ± 20 %. It depends on the attempt and never reads the clock. */
export const fromDelays = (delays: ReadonlyArray<Duration.Duration>): Schedule.Schedule<number> =>
  Schedule.jittered(
    Schedule.fromStepWithMetadata(
      Effect.succeed(({ attempt }: { readonly attempt: number }) => {
        const delay = delays[attempt - 1]
        return delay === undefined ? Cause.done(attempt) : Effect.succeed<[number, Duration.Duration]>([attempt, delay])
      }),
    ),
  )

/**
 * The delays before retries. They are not an arbitrary schedule: another replica could not continue one that reads the
 * clock.
 */
export class RetryDelays extends Context.Reference<ReadonlyArray<Duration.Duration>>("gatehouse/domain/RetryDelays", {
  defaultValue: () => defaultDelays,
}) {}

/** The limit of a response's Retry-After; a longer one is cut to it. */
const maxRetryAfter = Duration.hours(24)

/**
 * The wait after a failed attempt; `undefined` after the last one. It depends only on the delays, the attempt and
 * `Random`, so that any replica can continue the retries of another.
 *
 * @param attempt the number of the failed attempt; 1 is the first
 */
export const delayAfter = (delays: ReadonlyArray<Duration.Duration>, attempt: number) =>
  Effect.flatMap(Schedule.toStep(fromDelays(delays.slice(attempt - 1, attempt))), (step) => step(0, undefined)).pipe(
    Effect.map(([, delay]) => delay),
    Effect.catchIf(Cause.isDone, () => Effect.succeed(undefined)),
  )

/** The three forms of an HTTP date (RFC 9110, section 5.6.7), all in GMT. `Date.parse` would accept many others. */
const httpDates = [
  /^[a-z]{3}, (?<day>\d\d) (?<month>[a-z]{3}) (?<year>\d{4}) (?<time>[\d:]{8}) GMT$/i,
  /^[a-z]{6,9}, (?<day>\d\d)-(?<month>[a-z]{3})-(?<year>\d\d) (?<time>[\d:]{8}) GMT$/i,
  /^[a-z]{3} (?<month>[a-z]{3}) (?<day>[\d ]\d) (?<time>[\d:]{8}) (?<year>\d{4})$/i,
]

/** Returns milliseconds since the epoch, or NaN when the text is not an HTTP date. */
const parseHttpDate = (text: string) => {
  const { day, month, year, time } =
    httpDates.map((form) => form.exec(text)?.groups).find(Predicate.isNotUndefined) ?? {}
  return Date.parse(`${day} ${month} ${year} ${time} GMT`)
}

/**
 * Reads a `Retry-After` header. Returns at most 24 hours, and `undefined` when the header is absent or malformed.
 * Source: RFC 9110, section 10.2.3 (seconds or an HTTP date).
 *
 * @param now milliseconds since the epoch
 */
export const parseRetryAfter = (header: string | null, now: number): Duration.Duration | undefined => {
  if (header === null) return undefined
  const text = header.trim()
  const millis = /^\d+$/.test(text) ? Number(text) * 1000 : parseHttpDate(text) - now
  return Number.isNaN(millis) || millis < 0 ? undefined : Duration.min(Duration.millis(millis), maxRetryAfter)
}
