import { type Duration, Effect, Schedule, type Scope } from "effect"
import type { Unavailable } from "../domain/Errors.ts"

/**
 * Runs one pass of background work, and logs what goes wrong: the next pass tries again.
 *
 * @param problem what is not done, as a sentence without its full stop
 * @param shown what of a fault is logged; its cause by default
 */
export const logged = <R>(
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
  shown: (fault: unknown) => unknown = (fault) => fault,
): Effect.Effect<void, never, R> =>
  Effect.asVoid(pass).pipe(
    Effect.catch((error) => Effect.logWarning(`${problem}: ${error.error}`)),
    Effect.catchDefect((fault) => Effect.logError(problem, shown(fault))),
  )

/** Repeats `logged` work until the scope closes, with a pause between two passes. */
export const every = <R>(
  pause: Duration.Input,
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
): Effect.Effect<unknown, never, R | Scope.Scope> =>
  Effect.forkScoped(Effect.repeat(logged(problem, pass), Schedule.spaced(pause)))

/** `every` about hour. The jitter spreads the work of replicas. */
export const hourly = <R>(
  problem: string,
  pass: Effect.Effect<unknown, Unavailable, R>,
  shown?: (fault: unknown) => unknown,
): Effect.Effect<unknown, never, R | Scope.Scope> =>
  Effect.forkScoped(Effect.repeat(logged(problem, pass, shown), Schedule.jittered(Schedule.spaced("1 hour"))))
