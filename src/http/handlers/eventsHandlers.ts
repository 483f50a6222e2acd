import { Effect, Layer } from "effect"
import { group } from "./group.ts"
import { counted } from "../../domain/plural.ts"
import { wholeListPage } from "../../domain/Page.ts"
import { Events } from "../../domain/webhooks/Events.ts"
import { EventTypes } from "../../domain/webhooks/EventTypes.ts"
import { Api } from "../api/Api.ts"
import { done } from "../api/responses.ts"

const published = (repeated: number) =>
  repeated === 0
    ? "The event is published."
    : "An event was published before with this idempotency_key; it stays as it is, and nothing is published."

const allPublished = (repeated: number, count: number) =>
  repeated === 0
    ? "The events are published."
    : `Published: ${count - repeated} of ${counted(count, "event")}. What has the idempotency_key of an earlier event is not.`

const events = group(Api, "events", (handlers) =>
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

const eventTypes = group(Api, "eventTypes", (handlers) =>
  Effect.map(EventTypes, (types) =>
    handlers.handleAll({
      list: ({ payload }) => types.list(payload),
      get: ({ payload }) => types.get(payload.name),
      create: ({ payload }) => Effect.as(types.create(payload), done("The event type is in the catalogue.")),
      update: ({ payload }) => Effect.as(types.update(payload), done("The event type is changed.")),
      delete: ({ payload }) => Effect.as(types.remove(payload.name), done("The event type is deleted.")),
    }),
  ),
)

export const layer = Layer.merge(events, eventTypes)
