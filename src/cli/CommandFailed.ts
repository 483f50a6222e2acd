import { Data } from "effect"
import { usageExitCode } from "../boot/exit.ts"

/** A command has failed. `message` is one line for the user: what is wrong and what to do. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{
  readonly message: string
  /** Default: 1. `usageExitCode` for a wrong invocation. */
  readonly exitCode?: number
}> {}

/** The failure of a wrong invocation: exit code 2. */
export const usage = (message: string) => new CommandFailed({ message, exitCode: usageExitCode })
