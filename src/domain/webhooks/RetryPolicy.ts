import { Cause, Context, Duration, Effect, Predicate, Schedule } from "effect"

/** Five seconds, then minutes, then hours: ten attempts over a little more than three days. */
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

/** Retries after these delays, each ± 20 %. It counts attempts and never reads the clock. */
export const fromDelays = (delays: ReadonlyArray<Duration.Duration>): Schedule.Schedule<number> =>
  Schedule.jittered(
    Schedule.fromStepWithMetadata(
      Effect.succeed(({ attempt }: { readonly attempt: number }) => {
        const delay = delays[attempt - 1]
        return delay === undefined ? Cause.done(attempt) : Effect.succeed<[number, Duration.Duration]>([attempt, delay])
      }),
    ),
  )

/** The delays that retries follow: not any schedule, for one that reads the clock could not go on in another process. */
export class RetryDelays extends Context.Reference<ReadonlyArray<Duration.Duration>>("gatehouse/domain/RetryDelays", {
  defaultValue: () => defaultDelays,
}) {}

/** The longest that an answer's Retry-After is followed. */
const longestRetryAfter = Duration.hours(24)

/**
 * How long to wait after the `tries`-th failed attempt (1 is the first); `undefined`: there is no other attempt.
 * It depends on the delays, the attempt and `Random` alone, so that any replica can go on where another stopped.
 */
export const delayAfter = (delays: ReadonlyArray<Duration.Duration>, tries: number) =>
  Effect.flatMap(Schedule.toStep(fromDelays(delays.slice(tries - 1, tries))), (step) => step(0, undefined)).pipe(
    Effect.map(([, delay]) => delay),
    Effect.catchIf(Cause.isDone, () => Effect.succeed(undefined)),
  )

/** The three forms of an HTTP date (RFC 9110, section 5.6.7), all of them in GMT; `Date.parse` takes much else. */
const httpDates = [
  /^[a-z]{3}, (?<day>\d\d) (?<month>[a-z]{3}) (?<year>\d{4}) (?<time>[\d:]{8}) GMT$/i,
  /^[a-z]{6,9}, (?<day>\d\d)-(?<month>[a-z]{3})-(?<year>\d\d) (?<time>[\d:]{8}) GMT$/i,
  /^[a-z]{3} (?<month>[a-z]{3}) (?<day>[\d ]\d) (?<time>[\d:]{8}) (?<year>\d{4})$/i,
]

/** Milliseconds since the epoch; not a number when the text is no HTTP date. */
const parseHttpDate = (text: string) => {
  const { day, month, year, time } =
    httpDates.map((form) => form.exec(text)?.groups).find(Predicate.isNotUndefined) ?? {}
  return Date.parse(`${day} ${month} ${year} ${time} GMT`)
}

/**
 * What a `Retry-After` header asks for, at most 24 hours; `undefined` when it says nothing that can be read.
 * Source: RFC 9110, section 10.2.3 (seconds or an HTTP date).
 *
 * @param now milliseconds since the epoch
 */
export const parseRetryAfter = (header: string | null, now: number): Duration.Duration | undefined => {
  if (header === null) return undefined
  const text = header.trim()
  const millis = /^\d+$/.test(text) ? Number(text) * 1000 : parseHttpDate(text) - now
  return Number.isNaN(millis) || millis < 0 ? undefined : Duration.min(Duration.millis(millis), longestRetryAfter)
}
