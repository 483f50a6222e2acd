import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { type Settings, urlHost } from "./config.ts"

/** The welcome at a terminal: address, mode, database, console, docs and a first request. */
export const welcomeText = (
  url: string,
  { adminTokens, databaseUrl, dataDir }: Pick<Settings, "adminTokens" | "databaseUrl" | "dataDir">,
) => {
  const guarded = adminTokens !== undefined
  const embedded = `embedded database in ${dataDir === "memory" ? "memory: nothing is kept" : dataDir}`
  const token = (adminTokens?.length ?? 0) > 1 ? "${ADMIN_TOKEN%%,*}" : "$ADMIN_TOKEN"
  const credential = guarded ? ` -H "authorization: Bearer ${token}"` : ""
  return [
    `Gatehouse listens on ${url} (${guarded ? "guarded" : "open"} mode, ${databaseUrl === undefined ? embedded : "PostgreSQL"})`,
    `  console  ${url}/console`,
    `  docs     ${url}/docs`,
    `  try      curl -X POST ${url}/api/v0/projects${credential} -H "content-type: application/json" -d '{"name":"docs"}'`,
  ].join("\n")
}

/** The same facts as fields of a JSON log line. */
const welcomeFields = (url: string, { adminTokens, databaseUrl, dataDir }: Settings) => ({
  url,
  mode: adminTokens === undefined ? "open" : "guarded",
  ...(databaseUrl === undefined ? { database: "embedded", dataDir } : { database: "postgres" }),
  console: `${url}/console`,
  docs: `${url}/docs`,
})

/** Logs the address and the mode once the server listens, and warns about settings that should be set. */
export const logWelcome = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* HttpServer.HttpServer
      const port = "port" in server.address ? server.address.port : settings.port
      const url = `http://${urlHost(settings.host)}:${port}`
      yield* settings.logFormat === "pretty"
        ? Effect.logInfo(welcomeText(url, settings))
        : Effect.annotateLogs(Effect.logInfo(`Gatehouse listens on ${url}`), welcomeFields(url, settings))
      if (settings.adminTokens !== undefined && !settings.isBaseUrlSet) {
        yield* Effect.logWarning(
          `BASE_URL is not set: the service uses ${settings.baseUrl} as its address and as the audience of CI tokens. Set its public address, for example BASE_URL=https://gatehouse.example.com`,
        )
      }
      if (settings.allowedOwners === undefined) {
        yield* Effect.logWarning(
          "OIDC_ALLOWED_OWNERS is not set: only linked repositories and those of an org's owners may register deployments. To allow others, set their owners, for example OIDC_ALLOWED_OWNERS=acme",
        )
      }
    }),
  )
