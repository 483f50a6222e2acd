import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { NextCursor, NextCursorIfMore, pageQuery, wholeListFields } from "../../domain/Page.ts"
import { atMost, EventId, Text } from "../../domain/Schemas.ts"
import { SelectedEventType } from "../../domain/webhooks/EventPatterns.ts"
import { Event, EventDetail, SeenEventType } from "../../domain/webhooks/Event.ts"
import { PublishEvent, PublishEvents } from "../../domain/webhooks/Events.ts"
import { CatalogueType, CreateEventType, UpdateEventType } from "../../domain/webhooks/EventTypes.ts"
import { Conflict, Done, LimitReached, NotFound } from "./responses.ts"
import { about, access, WebhookAuthorization, WebhookIdempotent, WebhookRequestErrors } from "./access.ts"

const Deliveries = Schema.Int.annotate({
  description: "How many deliveries the event makes, those to inactive endpoints included; 0 for an earlier event.",
  examples: [2],
})

const afterType = Schema.optionalKey(Text.check(atMost(255))).annotate({
  description: "The next cursor of the previous page. Absent: the first page.",
  examples: ["invoice.paid"],
})

export class EventsGroup extends HttpApiGroup.make("events")
  .add(
    HttpApiEndpoint.post("list", "/v1/events/list", {
      payload: Schema.Struct({
        type: Schema.optionalKey(SelectedEventType).annotate({
          description: "Only events of exactly this type.",
          examples: ["invoice.paid"],
        }),
        ...pageQuery,
      }).annotate({ identifier: "ListEvents" }),
      success: Schema.Struct({
        events: Schema.Array(Event).annotate({ description: "The events of this page, the newest first." }),
        next_cursor: NextCursor,
      }).annotate({
        identifier: "EventPage",
      }),
    }).annotateMerge(
      about.read("List events", "Events of all types, the jobs' included, newest first, without their data."),
    ),
    HttpApiEndpoint.post("get", "/v1/events/get", {
      payload: Schema.Struct({ event_id: EventId }).annotate({ identifier: "GetEvent" }),
      success: EventDetail,
      error: NotFound,
    }).annotateMerge(
      about.read(
        "Get an event",
        "Returns the event with its payload. deliveries/list with event_id has its deliveries.",
      ),
    ),
    HttpApiEndpoint.post("types", "/v1/events/types", {
      payload: [
        Schema.Struct({ limit: wholeListFields.limit, cursor: afterType }).annotate({ identifier: "ListEventTypes" }),
        Schema.Undefined,
      ],
      success: Schema.Struct({
        types: Schema.Array(SeenEventType).annotate({ description: "The types of this page, by their names." }),
        next_cursor: NextCursorIfMore,
      }).annotate({
        identifier: "EventTypes",
      }),
    }).annotateMerge(
      about.read(
        "List event types",
        "Every type that the org has events of, in alphabetical order, with the time of the newest event. A type disappears " +
          "when its last event is removed. Up to 1,000; if there are more, next_cursor continues the list.",
      ),
    ),
  )
  .annotateEndpointsMerge(access.webhooks.ofGroup)
  // A portal session reads events and publishes none.
  .add(
    HttpApiEndpoint.post("publish", "/v1/events/publish", {
      payload: PublishEvent,
      success: Schema.Struct({ ...Done.fields, event_id: EventId, deliveries: Deliveries }).annotate({
        identifier: "EventPublished",
      }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(
        about.change(
          "Publish an event",
          "Sends an event of your own to the org's endpoints whose event_types match. The event and its deliveries are stored in " +
            "one transaction before the response.",
        ),
      )
      .annotateMerge(access.tenant.ofGroup),
    HttpApiEndpoint.post("publishBatch", "/v1/events/publish-batch", {
      payload: PublishEvents,
      success: Schema.Struct({
        ...Done.fields,
        event_ids: Schema.Array(EventId).annotate({
          description: "The ids of the events, in the order of the request.",
        }),
        deliveries: Schema.Array(Deliveries).annotate({
          description: "How many deliveries each event makes, in the order of the request.",
          examples: [[2, 2]],
        }),
      }).annotate({
        identifier: "EventsPublished",
      }),
      error: LimitReached,
    })
      .middleware(WebhookIdempotent)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.mebibytes(8))
      .annotateMerge(
        about.change(
          "Publish several events",
          "Publishes 1 to 100 events, all or none. event_ids has their ids in the order of the request. The body has at most 8 MiB.",
        ),
      )
      .annotateMerge(access.tenant.ofGroup),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateMerge(OpenApi.annotations({ title: "Events", description: "Events of your own, and those of jobs." })) {}

const named = Schema.Struct({
  name: SelectedEventType.annotate({ description: "The event type.", examples: ["invoice.paid"] }),
})

export class EventTypesGroup extends HttpApiGroup.make("eventTypes")
  .add(
    HttpApiEndpoint.post("list", "/v1/event-types/list", {
      payload: Schema.Struct({ limit: pageQuery.limit, cursor: afterType }).annotate({ identifier: "ListCatalogue" }),
      success: Schema.Struct({
        event_types: Schema.Array(CatalogueType).annotate({
          description: "The event types of this page, by their names.",
        }),
        next_cursor: NextCursor,
      }).annotate({
        identifier: "Catalogue",
      }),
    }).annotateMerge(about.read("List the catalogue", "The event types of the org's catalogue, by their names.")),
    HttpApiEndpoint.post("get", "/v1/event-types/get", {
      payload: named.annotate({ identifier: "GetEventType" }),
      success: CatalogueType,
      error: NotFound,
    }).annotateMerge(about.read("Get an event type", "Returns the type with its schemas and its example.")),
  )
  .annotateEndpointsMerge(access.webhooks.ofGroup)
  // A portal session reads the catalogue.
  .add(
    HttpApiEndpoint.post("create", "/v1/event-types/create", {
      payload: CreateEventType,
      success: Done,
      error: [Conflict, LimitReached],
    })
      .middleware(WebhookIdempotent)
      .annotateMerge(
        access.tenant.change(
          "Create an event type",
          "Describes a type of events for its receivers. An org has at most 1,000. Schemas refer to nothing outside of them, and do not recur.",
        ),
      ),
    HttpApiEndpoint.post("update", "/v1/event-types/update", {
      payload: UpdateEventType,
      success: Done,
      error: [NotFound, LimitReached],
    }).annotateMerge(access.tenant.change("Change an event type", "Absent fields stay, and so do other versions.")),
    HttpApiEndpoint.post("delete", "/v1/event-types/delete", {
      payload: named.annotate({ identifier: "DeleteEventType" }),
      success: Done,
      error: NotFound,
    }).annotateMerge(access.tenant.change("Delete an event type", "Its events stay.")),
  )
  .middleware(WebhookAuthorization)
  .middleware(WebhookRequestErrors)
  .annotateMerge(
    OpenApi.annotations({ title: "Event types", description: "The catalogue: what events there are, and their data." }),
  ) {}
