import { Console, Effect } from "effect"
import { CliOutput } from "effect/cli"

/**
 * Puts on standard output what was asked for, and on standard error what is wrong, in a line: a script must not take
 * the help for an answer.
 */
export const presenter: CliOutput.Presenter = {
  present: Effect.fnUntraced(function* (event) {
    if (event._tag === "InvalidInvocation") {
      const faults = event.errors.map(({ message }) => message).join("; ")
      return yield* Console.error(`gatehouse: ${faults}; ${event.commandPath.join(" ")} --help says how`)
    }
    if (event._tag === "Help" && event.reason === "Implicit") {
      return yield* Console.error((yield* CliOutput.Formatter).formatHelpDoc(event.helpDoc))
    }
    yield* CliOutput.defaultPresenter.present(event)
  }),
}
