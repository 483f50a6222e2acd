import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { LeakedKeys } from "../../domain/keys/LeakedKeys.ts"
import { Api } from "../api/Api.ts"

export const layer = HttpApiBuilder.group(Api, "secretScanning", (handlers) =>
  Effect.map(LeakedKeys, (leaked) => handlers.handleAll({ github: ({ payload }) => leaked.report(payload) })),
)
