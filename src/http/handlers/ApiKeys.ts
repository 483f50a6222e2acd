import { Effect, Redacted } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { Api } from "../api/Api.ts"
import { clientAddress } from "../server/clientAddress.ts"

export const layer = HttpApiBuilder.group(Api, "keys", (handlers) =>
  Effect.map(ApiKeys, (keys) =>
    handlers.handleAll({
      createForProject: ({ payload }) => keys.createForProject(payload),
      createForOrg: ({ params, payload }) => keys.createForOrg(params.orgId, payload),
      list: ({ params, query }) => keys.list(params.orgId, query),
      remove: ({ params }) => Effect.as(keys.remove(params.orgId, params.id), { deleted: true }),
      rotate: ({ params, payload }) => keys.rotate(params.orgId, params.id, payload),
      validate: ({ payload }) =>
        Effect.flatMap(clientAddress, (address) => keys.validate(Redacted.make(payload.key), address)),
    }),
  ),
)
