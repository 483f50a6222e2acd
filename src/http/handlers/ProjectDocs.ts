import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { StoredDocs } from "../../domain/docs/StoredDocs.ts"
import { Api } from "../api/Api.ts"

export const layer = HttpApiBuilder.group(Api, "docs", (handlers) =>
  Effect.map(StoredDocs, (docs) =>
    handlers.handleAll({
      get: ({ params }) => docs.get(params.projectId),
      put: ({ params, payload }) => docs.put(params.projectId, payload),
      remove: ({ params }) => Effect.as(docs.remove(params.projectId), { deleted: true }),
    }),
  ),
)
