import { Console, Effect } from "effect"
import { type CliError, CliOutput } from "effect/cli"

/** What is wrong with an invocation, in a line. */
const faultOf = (error: CliError.CliError) => {
  // Suggestions are lines of their own, below.
  const [fault] = error.message.replace("Expected: Schema validation failed: ", "").split("\n", 1)
  const suggestions = "suggestions" in error ? error.suggestions : []
  return suggestions.length === 0 ? fault : `${fault} (did you mean ${suggestions.join(" or ")}?)`
}

/**
 * Puts on standard output what was asked for, and on standard error what is wrong, in a line: a script must not take
 * the help for an answer.
 */
export const presenter: CliOutput.Presenter = {
  present: Effect.fnUntraced(function* (event) {
    if (event._tag === "InvalidInvocation") {
      const faults = event.errors.map(faultOf).join("; ")
      return yield* Console.error(`gatehouse: ${faults}; ${event.commandPath.join(" ")} --help says how`)
    }
    if (event._tag === "Help" && event.reason === "Implicit") {
      return yield* Console.error((yield* CliOutput.Formatter).formatHelpDoc(event.helpDoc))
    }
    yield* CliOutput.defaultPresenter.present(event)
  }),
}
