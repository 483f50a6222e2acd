import { Effect } from "effect"
import { group } from "./group.ts"
import { Orgs } from "../../domain/orgs/Orgs.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "orgs", (handlers) =>
  Effect.map(Orgs, (orgs) =>
    handlers.handleAll({
      create: ({ payload }) => orgs.create(payload),
      get: ({ params }) => orgs.get(params.orgId),
      update: ({ params, payload }) => orgs.update(params.orgId, payload),
      remove: ({ params }) => Effect.as(orgs.remove(params.orgId), { deleted: true }),
      erasure: ({ params }) => orgs.erasure(params.orgId),
      find: ({ query }) => orgs.find(query),
      list: ({ query }) => orgs.list(query),
    }),
  ),
)
