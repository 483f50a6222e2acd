import { Schema } from "effect"
import { Sse } from "effect/encoding"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { Id } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { liveEvents } from "./openapi/eventStreams.ts"
import { TooManyRequestsWithRetryAfter } from "./responses.ts"
import { access } from "./security.ts"

const LiveEvents = HttpApiSchema.WithHeaders(
  HttpApiSchema.StreamSse({
    events: Sse.EventEncoded,
  }),
  {
    "x-accel-buffering": Schema.Literal("no").annotate({ description: "Tells proxies not to buffer the stream." }),
  },
)

export class LiveGroup extends HttpApiGroup.make("live")
  .add(
    HttpApiEndpoint.get("follow", "/api/v0/live", {
      query: {
        orgId: Schema.optionalKey(Id).annotate({ description: "Only this org. Default: all that you may read." }),
      },
      headers: {
        "last-event-id": Schema.optionalKey(Schema.String).annotate({
          description: "The id of the last event of an earlier stream: the events after it come first.",
        }),
      },
      success: LiveEvents,
      error: [Forbidden, NotFound, TooManyRequestsWithRetryAfter],
    })
      .middleware(Authorization)
      .annotateMerge(access.self)
      .annotateMerge(liveEvents)
      .annotate(OpenApi.Summary, "Follow what changes")
      .annotate(
        OpenApi.Description,
        "Server-sent events: delivery (a recorded attempt and the new state), job, deployment, endpoint. Their data names what changed; " +
          "read it for more. reset: changes may be missing, so read again what you show; a stream without Last-Event-ID begins " +
          "with it. ping: every 15 seconds. A portal session gets deliveries and endpoints. A reader that is 1,000 events behind " +
          "is disconnected. At most 100 readers of an org and 1,000 of a process follow.",
      ),
  )
  .annotateMerge(OpenApi.annotations({ title: "Live", description: "What changes, as it changes." })) {}
