import { Data } from "effect"

/** The service cannot start. `message` is one line for the operator: what is wrong and what to do. */
export class StartupError extends Data.TaggedError("StartupError")<{
  readonly message: string
  readonly cause?: unknown
}> {}
