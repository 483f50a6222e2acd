import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { liveEvents } from "../server/liveEvents.ts"

export const layer = HttpApiBuilder.group(Api, "live", (handlers) =>
  Effect.succeed(
    handlers.handleAll({ follow: ({ headers, query }) => liveEvents(query.orgId, headers["last-event-id"]) }),
  ),
)
