import { Console, Effect, Option } from "effect"
import { Command } from "effect/cli"
import { appendFileSync } from "node:fs"
import { isCi, register as registerDeployment } from "../sdk/register.ts"
import { failure, plain, print } from "./output.ts"
import { Url, given, textFlag } from "./flags.ts"

/** Fails, and marks the failure in the log of the run. Source: GitHub's "Workflow commands". */
const failed = Effect.fnUntraced(function* (fault: string) {
  const message = `The deployment is not registered: ${plain(fault)}`
  if (process.env["GITHUB_ACTIONS"] === "true") {
    yield* Console.error(`::error title=Gatehouse::${message.replaceAll("%", "%25")}`)
  }
  return yield* failure(message)
})

/** Writes the outputs of the step, for later steps of the job. */
const writeOutputs = (outputs: Readonly<Record<string, string>>) =>
  Effect.try({
    try: () => {
      const file = process.env["GITHUB_OUTPUT"]
      const lines = Object.entries(outputs).map(([name, value]) => `${name}=${plain(value)}\n`)
      if (file) appendFileSync(file, lines.join(""))
    },
    catch: (error) => failure(`Cannot write the outputs of the step: ${plain(String(error))}. Check GITHUB_OUTPUT`),
  })

/** Registers the deployment of this CI run. Does nothing outside CI, so that the same script also runs locally. */
export const register = Command.make(
  "register",
  {
    audience: textFlag(
      "audience",
      "The audience of the token: one of the service's OIDC_AUDIENCE (default: its address)",
    ),
  },
  Effect.fnUntraced(function* ({ audience }) {
    if (!isCi(process.env)) {
      return yield* Console.error("This is not a CI run: there is nothing to register.")
    }
    const url = yield* Url
    if (Option.isNone(url) || !URL.canParse(url.value)) {
      return yield* failed("the address of the service is missing or no URL. Set GATEHOUSE_URL in the job, or --url")
    }
    const registration = yield* registerDeployment({
      url: url.value,
      environment: process.env,
      ...given({ audience }),
    }).pipe(Effect.catchTag("RegistrationFailed", ({ message }) => failed(message)))
    const { branch, preview, projectId } = registration
    yield* writeOutputs({ "project-id": projectId ?? "", branch: branch ?? "", preview: String(preview ?? false) })
    yield* print(JSON.stringify(registration), {
      out: projectId ?? "",
      note: `${preview ? "Preview" : "Deployment"} of ${plain(branch ?? "")} registered.`,
    })
  }),
).pipe(Command.withDescription("Register the deployment of a CI run with the run's own OIDC token"))
