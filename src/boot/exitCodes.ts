import { Cause, Console, Effect, Exit, Option } from "effect"

/** The exit code of a wrong invocation; every other failure exits with 1. */
export const usageExitCode = 2
/** The exit code of a program that a signal ends before its work is done, as shells have it for Ctrl+C. */
const interruptedExitCode = 130

/** Whether what a signal has ended was to run until then. Of the process: an interruption carries no value. */
let wasToBeStopped = false

/** Marks a program that runs until it is stopped: for it, a signal is no failure. */
export const stoppable = <A, E, R>(program: Effect.Effect<A, E, R>) =>
  Effect.onInterrupt(program, () => Effect.sync(() => void (wasToBeStopped = true)))

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
      onSome: ({ _tag, message }) =>
        _tag === "ShowHelp" || message === "" ? Effect.void : Console.error(`gatehouse: ${message}`),
      onNone: () => Console.error(Cause.pretty(cause)),
    })
  })

/** Options of `runMain` for all programs. Exit codes: 0 success, 1 failure, 2 wrong invocation, 130 interrupted. */
export const runOptions = {
  disableErrorReporting: true,
  teardown: (exit: Exit.Exit<unknown, unknown>, onExit: (code: number) => void) => onExit(exitCodeOf(exit)),
}

const exitCodeOf = (exit: Exit.Exit<unknown, unknown>) => {
  if (Exit.isSuccess(exit)) return 0
  // What a script does next must not rely on work that was cut off.
  if (Cause.hasInterruptsOnly(exit.cause)) return wasToBeStopped ? 0 : interruptedExitCode
  const error = Option.getOrUndefined(expectedError(exit.cause))
  return error?._tag === "ShowHelp" ? usageExitCode : (error?.exitCode ?? 1)
}
