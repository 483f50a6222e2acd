import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Activities } from "../../domain/activity/Activities.ts"
import { ServiceStates } from "../../domain/activity/ServiceStates.ts"
import { Api } from "../api/Api.ts"

export const layer = HttpApiBuilder.group(Api, "activity", (handlers) =>
  Effect.gen(function* () {
    const activities = yield* Activities
    const states = yield* ServiceStates
    return handlers.handleAll({
      overview: ({ query }) => activities.overview(query),
      activeOrgs: ({ query }) => activities.activeOrgs(query),
      failing: ({ query }) => activities.failing(query),
      replicas: () => states.read,
    })
  }),
)
