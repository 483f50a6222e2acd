import { Cause, Console, Effect, Exit, Option } from "effect"

/** The exit code of a wrong invocation; every other failure's is 1. */
export const USAGE = 2

interface Expected {
  readonly _tag: string
  readonly message: string
  /** USAGE where the invocation is wrong. */
  readonly exitCode?: number
}

const isExpected = (error: unknown): error is Expected =>
  ["StartupError", "CommandFailed", "ShowHelp"].includes((error as Expected | undefined)?._tag ?? "")

const expectedError = (cause: Cause.Cause<unknown>) => Option.filter(Cause.findErrorOption(cause), isExpected)

/** Says on standard error why the program ends: one line for what a person can mend, the whole cause for a fault of ours. */
export const reported = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.tapCause(program, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void
    return Option.match(expectedError(cause), {
      // The command line has printed its help, and what was wrong, by then.
      onSome: (error) => (error._tag === "ShowHelp" ? Effect.void : Console.error(`gatehouse: ${error.message}`)),
      onNone: () => Console.error(Cause.pretty(cause)),
    })
  })

/** How every program here ends: 0, 1 for a failure, 2 for a wrong invocation. */
export const runOptions = {
  disableErrorReporting: true,
  teardown: (exit: Exit.Exit<unknown, unknown>, onExit: (code: number) => void) => onExit(exitCodeOf(exit)),
}

const exitCodeOf = (exit: Exit.Exit<unknown, unknown>) => {
  // Being asked to stop, and stopping in order, is no failure.
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return 0
  const error = Option.getOrUndefined(expectedError(exit.cause))
  return error?._tag === "ShowHelp" ? USAGE : (error?.exitCode ?? 1)
}
