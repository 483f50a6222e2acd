import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Clock, Effect, Result } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { counted } from "../domain/plural.ts"
import { type Check, fail, ok, plausibleClock, warn } from "../infrastructure/checks/Check.ts"
import { failure, print } from "./output.ts"

const baseUrlRemedy = "set it to the public address of the service, for example BASE_URL=https://gatehouse.example.com"

/** The mode, and warnings about variables that should be set. */
const configurationChecks = (settings: Config.Settings): ReadonlyArray<Check> => {
  const { adminTokens, allowedOwners, baseUrl, databaseUrl, host, isBaseUrlSet, misspelt, quotedSecrets } = settings
  const checks = [ok("configuration", `${adminTokens === undefined ? "open" : "guarded"} mode, at ${baseUrl}`)]
  if (allowedOwners === undefined) {
    checks.push(
      warn(
        "configuration",
        "OIDC_ALLOWED_OWNERS is not set: only linked repositories and those of an org's owners may register",
        "set it to the owners of your repositories, for example OIDC_ALLOWED_OWNERS=acme",
      ),
    )
  }
  if (adminTokens !== undefined && !isBaseUrlSet) {
    checks.push(
      warn(
        "configuration",
        `BASE_URL is not set: the service uses ${baseUrl} as its address and as the audience of CI tokens`,
        baseUrlRemedy,
      ),
    )
  } else if (["0.0.0.0", "::"].includes(host) && baseUrl.includes(host)) {
    checks.push(
      warn(
        "configuration",
        `BASE_URL is ${baseUrl}, which is not a public address; the service also uses it as the audience of CI tokens`,
        baseUrlRemedy,
      ),
    )
  }
  if (adminTokens === undefined && (isBaseUrlSet || databaseUrl !== undefined)) {
    const remedy = "set it before others reach the service, for example ADMIN_TOKEN=$(openssl rand -hex 32)"
    checks.push(warn("configuration", "ADMIN_TOKEN is not set: anyone who reaches the service can manage it", remedy))
  }
  // The service itself has no TLS.
  if (baseUrl.startsWith("https:") && settings.trustedProxies === 0) {
    const message = "TRUST_PROXY is 0, but BASE_URL is https: all clients seem to come from the address of your proxy"
    checks.push(warn("configuration", message, "set it to the number of proxies in front, for example TRUST_PROXY=1"))
  }
  for (const sentence of misspelt) checks.push(warn("configuration", sentence, "correct or remove the variable"))
  for (const name of quotedSecrets) {
    const message = `${name} begins or ends with a quotation mark or white space, which is part of the secret here`
    checks.push(warn("configuration", message, "if a file of variables has kept it, remove it there"))
  }
  return checks
}

/** Whether the configuration says that CI registers here. */
const expectsCi = (settings: Config.Settings) => {
  const { adminTokens, allowedOwners, baseUrl, githubIssuer, hasProvidersFile, oidcAudiences } = settings
  const isConfigured = allowedOwners !== undefined || hasProvidersFile || githubIssuer !== Config.defaultIssuer
  return adminTokens !== undefined && (isConfigured || oidcAudiences.some((one) => one !== baseUrl))
}

const runChecks = Effect.fnUntraced(function* (settings: Config.Settings) {
  const { ciProviders, databaseUrl, dataDir, egressProxy, encryptionKeys, listenUrl, nodes, retentionDays } = settings
  // Imported here: the other commands start faster without the service's modules.
  const [postgres, embedded, network] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/checks/checkPostgres.ts"),
      import("../infrastructure/checks/checkEmbedded.ts"),
      import("../infrastructure/checks/checkNetwork.ts"),
    ]),
  )
  const database =
    databaseUrl === undefined
      ? embedded.checkEmbedded(dataDir, encryptionKeys, retentionDays)
      : postgres.checkPostgres({ databaseUrl, listenUrl, nodes }, encryptionKeys ?? [], retentionDays)
  const needed = expectsCi(settings)
  const ci = ciProviders.map((provider) => network.checkIssuer(provider, { needed }))
  const proxies = egressProxy === undefined ? [] : [network.checkEgressProxy(egressProxy)]
  const remedy = "let this machine reach CONSOLE_OIDC_ISSUER, or correct it; nobody signs in there until then"
  const people = settings.people && [
    network.checkIssuer({ ...settings.people, jwks: undefined }, { needed: true, remedy }),
  ]
  const checks = (yield* Effect.all([database, ...ci, ...(people ?? []), ...proxies], { concurrency: 4 })).flat()
  const isClockCompared = checks.some(({ name }) => name === "clock")
  const plausibility = isClockCompared ? [] : [plausibleClock(yield* Clock.currentTimeMillis)]
  return [...configurationChecks(settings), ...checks, ...plausibility]
})

const line = ({ message, name, remedy, state }: Check) =>
  `${state.padEnd(4)}  ${name.padEnd(13)}  ${message}${remedy === undefined ? "" : `\n      ${" ".repeat(13)}  → ${remedy}`}`

/** Checks what the service needs, with the service's environment variables, and says what to fix. */
export const doctor = Command.make(
  "doctor",
  {},
  Effect.fnUntraced(function* () {
    const settings = yield* Effect.result(Config.load)
    const checks = Result.isSuccess(settings)
      ? yield* Effect.provide(runChecks(settings.success), NodeCrypto.layer)
      : [
          fail(
            "configuration",
            settings.failure.message,
            "correct the variable and run doctor again; the other checks did not run",
          ),
        ]
    const failures = checks.filter(({ state }) => state === "fail").length
    yield* print(JSON.stringify({ ok: failures === 0, checks }), { out: checks.map(line).join("\n") })
    if (failures > 0) {
      return yield* failure(`${failures} of ${counted(checks.length, "check")} failed`)
    }
  }),
).pipe(
  Command.withDescription(
    "Check configuration, database, its growth, clocks, issuers, egress proxy and encryption; reads the environment variables of serve",
  ),
)
