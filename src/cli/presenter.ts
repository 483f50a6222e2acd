import { Console, Effect } from "effect"
import { type CliError, CliOutput } from "effect/cli"

/** What is wrong with an invocation, in one line. */
const faultOf = (error: CliError.CliError) => {
  // Only the first line: the others repeat the suggestions.
  const [fault] = error.message.replace("Expected: Schema validation failed: ", "").split("\n", 1)
  const suggestions = "suggestions" in error ? error.suggestions : []
  return suggestions.length === 0 ? fault : `${fault} (did you mean ${suggestions.join(" or ")}?)`
}

/**
 * Prints requested help on standard output and usage errors on standard error, so that scripts do not read help as
 * output.
 */
export const presenter: CliOutput.Presenter = {
  present: Effect.fnUntraced(function* (event) {
    if (event._tag === "InvalidInvocation") {
      const faults = event.errors.map(faultOf).join("; ")
      return yield* Console.error(`gatehouse: ${faults}; see ${event.commandPath.join(" ")} --help`)
    }
    if (event._tag === "Help" && event.reason === "Implicit") {
      return yield* Console.error((yield* CliOutput.Formatter).formatHelpDoc(event.helpDoc))
    }
    yield* CliOutput.defaultPresenter.present(event)
  }),
}
