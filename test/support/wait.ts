import { Cause, Duration, Effect, Option, Schedule } from "effect"
import { slowness } from "./slowness.ts"

/** The longest wait of a test: far longer than a busy machine needs, and shorter than the timeout of a test. */
const limit = Duration.seconds(60 * slowness)

const late = (what: string, last?: string) =>
  new Error(`Waited ${Duration.format(limit)} for ${what}${last === undefined ? "" : `; the last look: ${last}`}`)

/** Runs an effect that must end; fails with the name of what it waited for. Uses real time. */
export const within = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>) =>
  Effect.timeoutOrElse(effect, { duration: limit, orElse: () => Effect.die(late(what)) })

/**
 * Repeats an effect until it succeeds; fails with the name of what it waited for and the last failure. Uses real time.
 */
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

/**
 * Repeats an effect until its value is as expected; fails with the name of what it waited for and the last value. Uses
 * real time.
 */
export const until = <A, E, R>(what: string, look: Effect.Effect<A, E, R>, expected: (found: A) => boolean) =>
  eventually(
    what,
    Effect.tap(look, (found) => (expected(found) ? Effect.void : Effect.die(JSON.stringify(found)))),
  )
