import { Effect } from "effect"
import { group } from "./group.ts"
import { Readiness } from "../../domain/activity/ServiceStates.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "system", (handlers) =>
  Effect.map(Readiness, (readiness) =>
    handlers.handleAll({
      healthz: () => Effect.succeed({ ok: true }),
      readyz: () => Effect.map(readiness.check, (state) => ({ ok: true, ...state })),
    }),
  ),
)
