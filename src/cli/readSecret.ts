import { Config, Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Prompt } from "effect/cli"

/**
 * Reads a secret from the environment variable, if it is set; else from a hidden prompt at a terminal; else from standard
 * input. Returns `undefined` if there is none. Never from an argument: arguments appear in the process list and in the
 * shell's history.
 *
 * @param prompt the label of the prompt
 */
export const readSecret = Effect.fnUntraced(function* (prompt: string, variable?: string) {
  if (variable !== undefined) {
    const set = yield* Effect.orDie(Config.option(Config.Redacted(variable)))
    if (Option.isSome(set) && Redacted.value(set.value) !== "") return set.value
  }
  const stdio = yield* Stdio.Stdio
  const text = (yield* stdio.stdinIsTerminal)
    ? Redacted.value(yield* Prompt.run(Prompt.Hidden({ message: `${prompt}:` })))
    : yield* Effect.orDie(Stream.mkString(Stream.decodeText(stdio.stdin)))
  return text.trim() === "" ? undefined : Redacted.make(text.trim())
})
