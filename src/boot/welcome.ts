import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import type { Settings } from "./config.ts"

/** What a person at a terminal is told: where it is, in which mode, where the docs are and what to try first. */
const forPeople = (url: string, { adminTokens, databaseUrl, dataDir }: Settings) => {
  const guarded = adminTokens !== undefined
  const embedded = `embedded database in ${dataDir === "memory" ? "memory: nothing is kept" : dataDir}`
  const token = (adminTokens?.length ?? 0) > 1 ? "${ADMIN_TOKEN%%,*}" : "$ADMIN_TOKEN"
  const credential = guarded ? ` -H "authorization: Bearer ${token}"` : ""
  return [
    `Gatehouse listens on ${url} (${guarded ? "guarded" : "open"} mode, ${databaseUrl === undefined ? embedded : "PostgreSQL"})`,
    `  docs  ${url}/docs`,
    `  try   curl -X POST ${url}/api/v0/projects${credential} -H "content-type: application/json" -d '{"name":"docs"}'`,
  ].join("\n")
}

/** The same for a program: one line, and fields. */
const fieldsOf = (url: string, { adminTokens, databaseUrl, dataDir }: Settings) => ({
  url,
  mode: adminTokens === undefined ? "open" : "guarded",
  ...(databaseUrl === undefined ? { database: "embedded", dataDir } : { database: "postgres" }),
  docs: `${url}/docs`,
})

/** Says, once the server listens, where it is and how it is configured. */
export const announce = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* HttpServer.HttpServer
      const port = "port" in server.address ? server.address.port : settings.port
      const host = settings.host.includes(":") ? `[${settings.host}]` : settings.host
      const url = `http://${host}:${port}`
      yield* settings.logFormat === "pretty"
        ? Effect.logInfo(forPeople(url, settings))
        : Effect.annotateLogs(Effect.logInfo(`Gatehouse listens on ${url}`), fieldsOf(url, settings))
      if (settings.adminTokens !== undefined && !settings.isBaseUrlSet) {
        yield* Effect.logWarning(
          `BASE_URL is not set: ${settings.baseUrl} is taken for the address of the service, to which CI tokens are made out; set BASE_URL=https://gatehouse.example.com`,
        )
      }
      if (settings.allowedOwners === undefined) {
        yield* Effect.logWarning(
          "OIDC_ALLOWED_OWNERS is not set: only repositories that a project is linked to may register deployments",
        )
      }
    }),
  )
