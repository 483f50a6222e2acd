import { Effect } from "effect"
import { group } from "./group.ts"
import { wholeListPage } from "../../domain/Page.ts"
import { Events } from "../../domain/webhooks/Events.ts"
import { Api } from "../api/Api.ts"
import { done } from "../api/responses.ts"

const published = (repeated: number) =>
  repeated === 0
    ? "The event is published."
    : "An event was published before with this idempotency_key; it stays as it is, and nothing is published."

const allPublished = (repeated: number, count: number) =>
  repeated === 0
    ? "The events are published."
    : `${count - repeated} of ${count} events are published; the others have the idempotency_key of an earlier event, which stays as it is.`

export const layer = group(Api, "events", (handlers) =>
  Effect.map(Events, (events) =>
    handlers.handleAll({
      publish: ({ payload }) =>
        Effect.map(
          events.publish([payload], () => "data"),
          ({ deliveries, ids, repeated }) => ({
            ...done(published(repeated)),
            event_id: ids[0]!,
            deliveries: deliveries[0]!,
          }),
        ),
      publishBatch: ({ payload }) =>
        Effect.map(
          events.publish(payload.events, (n) => `events.${n}.data`),
          ({ deliveries, ids, repeated }) => ({
            ...done(allPublished(repeated, ids.length)),
            event_ids: ids,
            deliveries,
          }),
        ),
      list: ({ payload }) => events.list(payload),
      get: ({ payload }) => events.get(payload.event_id),
      types: ({ payload }) => events.types(wholeListPage(payload)),
    }),
  ),
)
