import { Cause, Duration, Effect, Option, Schedule } from "effect"

/** How long a test waits for anything: far longer than it takes on a busy machine, and less than the tests' time-out. */
const limit = Duration.seconds(60)

const late = (what: string, last?: string) =>
  new Error(`Waited ${Duration.format(limit)} for ${what}${last === undefined ? "" : `; the last look: ${last}`}`)

/** Runs an effect that ends by itself, and fails with what was waited for when it does not. Real time. */
export const within = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>) =>
  Effect.timeoutOrElse(effect, { duration: limit, orElse: () => Effect.die(late(what)) })

/** Repeats a look until it succeeds, and fails with what was waited for and the last failure when it never does. Real time. */
export const eventually = <A, E, R>(what: string, look: Effect.Effect<A, E, R>) => {
  let last = "none has ended"
  return look.pipe(
    Effect.tapCause((cause) => Effect.sync(() => void (last = Cause.pretty(cause).slice(0, 2_000)))),
    Effect.sandbox,
    Effect.retry(Schedule.spaced("10 millis")),
    Effect.timeoutOption(limit),
    Effect.flatMap(Option.match({ onNone: () => Effect.die(late(what, last)), onSome: Effect.succeed })),
  )
}

/** Repeats a look until what it sees is as expected, and fails with what was waited for and what was seen last. Real time. */
export const until = <A, E, R>(what: string, look: Effect.Effect<A, E, R>, expected: (found: A) => boolean) =>
  eventually(
    what,
    Effect.tap(look, (found) => (expected(found) ? Effect.void : Effect.die(JSON.stringify(found)))),
  )
