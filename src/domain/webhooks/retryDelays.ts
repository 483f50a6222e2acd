import { Cause, Context, Duration, Effect, Predicate, Schedule } from "effect"

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
