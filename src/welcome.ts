import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import type { Settings } from "./config.ts"

/** Says, once the server listens, where it is, in which mode, where the docs are and what to try first. */
export const announce = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* HttpServer.HttpServer
      const port = "port" in server.address ? server.address.port : settings.port
      const host = settings.host.includes(":") ? `[${settings.host}]` : settings.host
      const url = `http://${host}:${port}`
      const guarded = settings.adminToken !== undefined
      const database =
        settings.databaseUrl !== undefined
          ? "PostgreSQL"
          : `embedded database in ${settings.dataDir === "memory" ? "memory: nothing is kept" : settings.dataDir}`
      const credential = guarded ? ` -H "authorization: Bearer $ADMIN_TOKEN"` : ""
      yield* Effect.logInfo(
        [
          `Gatehouse listens on ${url} (${guarded ? "guarded" : "open"} mode, ${database})`,
          `  docs  ${url}/docs`,
          `  try   curl -X POST ${url}/api/v0/projects${credential} -H "content-type: application/json" -d '{"name":"docs"}'`,
        ].join("\n"),
      )
      if (settings.allowedOwners === undefined) {
        yield* Effect.logWarning(
          "OIDC_ALLOWED_OWNERS is not set: only repositories that a project is linked to may register deployments",
        )
      }
    }),
  )
