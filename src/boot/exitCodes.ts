import { Cause, Console, Effect, Exit, Option } from "effect"

/** The exit code of a wrong invocation; every other failure exits with 1. */
export const usageExitCode = 2

interface Expected {
  readonly _tag: string
  readonly message: string
  /** `usageExitCode` for a wrong invocation. */
  readonly exitCode?: number
}

const isExpected = (error: unknown): error is Expected =>
  ["StartupError", "CommandFailed", "ShowHelp"].includes((error as Expected | undefined)?._tag ?? "")

const expectedError = (cause: Cause.Cause<unknown>) => Option.filter(Cause.findErrorOption(cause), isExpected)

/**
 * Prints on standard error why the program ends: one line for an error that the user can fix, the whole cause for a
 * defect.
 */
export const reported = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.tapCause(program, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void
    return Option.match(expectedError(cause), {
      // The command line has printed the help and the fault already.
      onSome: (error) => (error._tag === "ShowHelp" ? Effect.void : Console.error(`gatehouse: ${error.message}`)),
      onNone: () => Console.error(Cause.pretty(cause)),
    })
  })

/** Options of `runMain` for every program here. Exit codes: 0 success, 1 failure, 2 wrong invocation. */
export const runOptions = {
  disableErrorReporting: true,
  teardown: (exit: Exit.Exit<unknown, unknown>, onExit: (code: number) => void) => onExit(exitCodeOf(exit)),
}

const exitCodeOf = (exit: Exit.Exit<unknown, unknown>) => {
  // An orderly stop on request is a success.
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return 0
  const error = Option.getOrUndefined(expectedError(exit.cause))
  return error?._tag === "ShowHelp" ? usageExitCode : (error?.exitCode ?? 1)
}
