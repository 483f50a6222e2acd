import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { wholeListPage } from "../../domain/Page.ts"
import { Events } from "../../domain/webhooks/Events.ts"
import { Api } from "../api/Api.ts"
import { done } from "../api/webhookResponses.ts"

export const layer = HttpApiBuilder.group(Api, "events", (handlers) =>
  Effect.map(Events, (events) =>
    handlers.handleAll({
      publish: ({ payload }) =>
        Effect.map(
          events.publish([payload], () => "data"),
          ([event_id]) => ({ ...done("The event is published."), event_id: event_id! }),
        ),
      publishBatch: ({ payload }) =>
        Effect.map(
          events.publish(payload.events, (n) => `events.${n}.data`),
          (event_ids) => ({ ...done("The events are published."), event_ids }),
        ),
      list: ({ payload }) => events.list(payload),
      get: ({ payload }) => events.get(payload.event_id),
      types: ({ payload }) => events.types(wholeListPage(payload)),
    }),
  ),
)
