import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { CurrentRun } from "../../domain/deployments/Deployment.ts"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import * as Credentials from "./credentials.ts"
import { CiAuthorization } from "../api/middleware.ts"

/** The middleware of CI runs: turns the bearer token into the run. */
export const layer = Layer.effect(
  CiAuthorization,
  Effect.map(Deployments, (deployments) =>
    CiAuthorization.of(
      Effect.fnUntraced(function* (operation) {
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        const credential = yield* Credentials.read(headers)
        const run = yield* deployments.admit(credential?.bearer === true ? credential.token : undefined)
        return yield* Effect.provideService(operation, CurrentRun, run)
      }),
    ),
  ),
)
