import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Clock, Effect, Result } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { type Check, fail, ok, warn } from "../infrastructure/checks/Check.ts"
import { CommandFailed } from "./CommandFailed.ts"
import { print } from "./output.ts"

const remedyOfBaseUrl =
  "set it to the public address of the service, for example BASE_URL=https://gatehouse.example.com"

/** What the configuration says, and what it leaves unsaid. */
const configurationChecks = (settings: Config.Settings): ReadonlyArray<Check> => {
  const { adminTokens, allowedOwners, baseUrl, host, isBaseUrlSet } = settings
  const checks = [ok("configuration", `${adminTokens === undefined ? "open" : "guarded"} mode, at ${baseUrl}`)]
  if (allowedOwners === undefined) {
    checks.push(
      warn(
        "configuration",
        "OIDC_ALLOWED_OWNERS is not set: only linked repositories may register",
        "set it to the owners of your repositories, for example OIDC_ALLOWED_OWNERS=acme",
      ),
    )
  }
  if (adminTokens !== undefined && !isBaseUrlSet) {
    checks.push(
      warn(
        "configuration",
        `BASE_URL is not set: the service assumes ${baseUrl}, also as the audience of CI tokens`,
        remedyOfBaseUrl,
      ),
    )
  } else if (["0.0.0.0", "::"].includes(host) && baseUrl.includes(host)) {
    checks.push(
      warn(
        "configuration",
        `BASE_URL is ${baseUrl}, which is not a public address; it is also the audience of CI tokens`,
        remedyOfBaseUrl,
      ),
    )
  }
  return checks
}

/** Whether CI is meant to register here: in open mode nobody may have thought of it. */
const isForCi = ({ adminTokens, allowedOwners, baseUrl, githubIssuer, oidcAudiences }: Config.Settings) =>
  adminTokens !== undefined &&
  (allowedOwners !== undefined || githubIssuer !== Config.defaultIssuer || oidcAudiences.some((one) => one !== baseUrl))

const examine = Effect.fnUntraced(function* (settings: Config.Settings) {
  const { databaseUrl, dataDir, encryptionKeys, githubIssuer } = settings
  // Loaded only here, like all of the service.
  const [postgres, embedded, issuer, clock] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/checks/postgres.ts"),
      import("../infrastructure/checks/embedded.ts"),
      import("../infrastructure/checks/issuer.ts"),
      import("../infrastructure/checks/clock.ts"),
    ]),
  )
  const database =
    databaseUrl === undefined
      ? embedded.checkEmbedded(dataDir, encryptionKeys)
      : postgres.checkPostgres(databaseUrl, encryptionKeys ?? [])
  const ci = issuer.checkIssuer(githubIssuer, { needed: isForCi(settings) })
  const checks = (yield* Effect.all([database, ci], { concurrency: 2 })).flat()
  const compared = checks.some(({ name }) => name === "clock")
  const alone = compared ? [] : [clock.plausibleClock(yield* Clock.currentTimeMillis)]
  return [...configurationChecks(settings), ...checks, ...alone]
})

const line = ({ message, name, remedy, state }: Check) =>
  `${state.padEnd(4)}  ${name.padEnd(13)}  ${message}${remedy === undefined ? "" : `\n      ${" ".repeat(13)}  → ${remedy}`}`

/** Checks everything that the service needs, with the service's environment variables, and says what to fix. */
export const doctor = Command.make(
  "doctor",
  {},
  Effect.fnUntraced(function* () {
    const settings = yield* Effect.result(Config.load)
    const checks = Result.isSuccess(settings)
      ? yield* Effect.provide(examine(settings.success), NodeCrypto.layer)
      : [fail("configuration", settings.failure.message, "fix it and run doctor again; the other checks did not run")]
    const failures = checks.filter(({ state }) => state === "fail").length
    yield* print(JSON.stringify({ ok: failures === 0, checks }), { out: checks.map(line).join("\n") })
    if (failures > 0) {
      return yield* new CommandFailed({ message: `${failures} of ${checks.length} checks failed` })
    }
  }),
).pipe(
  Command.withDescription(
    "Check configuration, database, clocks, CI issuer and encryption; reads the environment variables of serve",
  ),
)
