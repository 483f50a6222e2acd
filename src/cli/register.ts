import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { isCi, register as registerDeployment } from "../sdk/register.ts"
import { CommandFailed } from "./CommandFailed.ts"
import { given, Url } from "./flags.ts"
import { plain, print } from "./output.ts"

/** Registers the deployment of this CI run. Does nothing outside CI, so that the same script also runs locally. */
export const register = Command.make(
  "register",
  {
    audience: Flag.String("audience").pipe(
      Flag.withDescription("The audience of the token: one of the service's OIDC_AUDIENCE (default: its address)"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ audience }) {
    if (!isCi(process.env)) {
      return yield* Console.error("This is not a CI run: there is nothing to register.")
    }
    const url = yield* Url
    const registration = yield* registerDeployment({ url, environment: process.env, ...given({ audience }) }).pipe(
      Effect.mapError(
        ({ message }) => new CommandFailed({ message: `The deployment is not registered: ${plain(message)}` }),
      ),
    )
    const { branch, preview, projectId } = registration
    yield* print(JSON.stringify(registration), {
      out: projectId ?? "",
      note: `${preview ? "Preview" : "Deployment"} of ${plain(branch ?? "")} registered.`,
    })
  }),
).pipe(Command.withDescription("Register the deployment of a CI run with the run's own OIDC token"))
