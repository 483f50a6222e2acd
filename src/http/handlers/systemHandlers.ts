import { Effect } from "effect"
import { group } from "./group.ts"
import { Readiness } from "../../domain/activity/ServiceStates.ts"
import { KeyTokens } from "../../domain/keys/KeyTokens.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "system", (handlers) =>
  Effect.zipWith(Readiness, KeyTokens, (readiness, tokens) =>
    handlers.handleAll({
      jwks: () => tokens.publicKeys,
      healthz: () => Effect.succeed({ ok: true }),
      readyz: () => Effect.map(readiness.check, (state) => ({ ok: true, ...state })),
    }),
  ),
)
