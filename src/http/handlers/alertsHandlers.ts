import { Effect, Layer } from "effect"
import { group } from "./group.ts"
import { Alerts } from "../../domain/alerts/Alerts.ts"
import { Api } from "../api/Api.ts"

const ofOrgs = group(Api, "alerts", (handlers) =>
  Effect.map(Alerts, (alerts) =>
    handlers.handleAll({
      list: ({ params, query }) => alerts.list(params.orgId, query),
      create: ({ params, payload }) => alerts.create(params.orgId, payload),
      update: ({ params, payload }) => alerts.update(params.orgId, params.id, payload),
      remove: ({ params }) => Effect.as(alerts.remove(params.orgId, params.id), { deleted: true }),
      test: ({ params }) => alerts.test(params.orgId, params.id),
    }),
  ),
)

const ofService = group(Api, "serviceAlerts", (handlers) =>
  Effect.map(Alerts, (alerts) =>
    handlers.handleAll({
      list: ({ query }) => alerts.list(null, query),
      create: ({ payload }) => alerts.create(null, payload),
      update: ({ params, payload }) => alerts.update(null, params.id, payload),
      remove: ({ params }) => Effect.as(alerts.remove(null, params.id), { deleted: true }),
      test: ({ params }) => alerts.test(null, params.id),
    }),
  ),
)

export const layer = Layer.merge(ofOrgs, ofService)
