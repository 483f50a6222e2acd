import { Data } from "effect"
import { USAGE } from "../boot/exit.ts"

/** A command has failed. `message` is one line for the person who gave it: what is wrong, and what to do. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{
  readonly message: string
  /** 1, or `USAGE` where the invocation is wrong. */
  readonly exitCode?: number
}> {}

/** The invocation is wrong: exit code 2. */
export const usage = (message: string) => new CommandFailed({ message, exitCode: USAGE })
