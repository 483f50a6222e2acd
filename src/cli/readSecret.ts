import { Config, Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Prompt } from "effect/cli"
import { usage } from "./CommandFailed.ts"

/**
 * A secret that is no argument, for those are in the process list and the shell's history: from the environment
 * variable, if one is named and set; else typed unseen at a terminal; else all of standard input.
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
  if (text.trim() !== "") return Redacted.make(text.trim())
  return yield* usage(
    `${what} is missing; ${variable === undefined ? "give it" : `set ${variable}, or give it`} on standard input`,
  )
})
