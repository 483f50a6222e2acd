import { Config, Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Prompt } from "effect/cli"

/**
 * A secret that is no argument, for those are in the process list and the shell's history: from the environment
 * variable, if one is named and set; else typed unseen at a terminal; else all of standard input. `undefined` when there
 * is nothing.
 */
export const readSecret = Effect.fnUntraced(function* (what: string, variable?: string) {
  if (variable !== undefined) {
    const set = yield* Effect.orDie(Config.option(Config.Redacted(variable)))
    if (Option.isSome(set) && Redacted.value(set.value) !== "") return set.value
  }
  const stdio = yield* Stdio.Stdio
  const text = (yield* stdio.stdinIsTerminal)
    ? Redacted.value(yield* Prompt.run(Prompt.Hidden({ message: `${what}:` })))
    : yield* Effect.orDie(Stream.mkString(Stream.decodeText(stdio.stdin)))
  return text.trim() === "" ? undefined : Redacted.make(text.trim())
})
