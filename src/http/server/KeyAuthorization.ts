import { Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { Unauthorized } from "../../domain/Errors.ts"
import { RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import { CurrentTenant } from "../../domain/Tenant.ts"
import * as Credentials from "./credentials.ts"
import { KeyAuthorization } from "../api/middleware.ts"
import { ofOrg } from "./requestLog.ts"

const required = new Unauthorized({ error: "This operation needs an API key: x-api-key: <key>." })

/** The middleware of the webhook interface: turns `x-api-key` into the tenant. */
export const layer = Layer.effect(
  KeyAuthorization,
  Effect.map(ApiKeys, (keys) =>
    KeyAuthorization.of(
      Effect.fnUntraced(function* (operation) {
        const { headers } = yield* HttpServerRequest.HttpServerRequest
        // An Authorization beside it is checked as well: it may only say the same.
        const credential = yield* Credentials.read(headers)
        if (credential === undefined || headers["x-api-key"] === undefined) return yield* required
        const { orgId, keyId } = yield* keys.authenticate(credential.token)
        yield* ofOrg(orgId)
        return yield* operation.pipe(
          Effect.provideService(CurrentTenant, { orgId, keyId }),
          Effect.provideService(RequestOrg, orgId),
        )
      }),
    ),
  ),
)
