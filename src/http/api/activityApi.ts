import { Schema } from "effect"
import { Sse } from "effect/encoding"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { pageQuery } from "../../domain/Page.ts"
import { Id, time } from "../../domain/Schemas.ts"
import {
  ActiveOrg,
  FailingEndpoint,
  measureQuery,
  Overview,
  overviewQuery,
  RankCursor,
} from "../../domain/activity/Activity.ts"
import { ServiceState } from "../../domain/activity/ActivityRepository.ts"
import { liveEvents } from "./openapi/eventStreams.ts"
import { TooManyRequestsWithRetryAfter } from "./responses.ts"
import { access, Authorization } from "./access.ts"

/** The range and the page of a ranking. */
const rankingQuery = {
  since: Schema.optionalKey(
    time(
      "The start of the range: 30 days ago at most. Default: 24 hours ago. Counts from the start of its hour, or of its day " +
        "if that is longer ago than two days.",
    ),
  ),
  limit: pageQuery.limit,
  cursor: Schema.optionalKey(RankCursor).annotate({
    description: "The next cursor of the previous page. Absent: the first page.",
    examples: ["42.01KAHBMKZ3D2X7S5QN8W4V6R9T"],
  }),
}
const nextCursor = Schema.NullOr(Schema.String).annotate({
  description: "The cursor of the next page. null: this is the last page.",
  examples: [null],
})

export class ActivityGroup extends HttpApiGroup.make("activity")
  .add(
    HttpApiEndpoint.get("overview", "/api/v0/overview", {
      query: overviewQuery,
      success: Overview,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "Read what happened",
        "Deliveries, validations and finished jobs by interval, and the state of the queue: in every org, or in one. At most " +
          "1,000 intervals. Minutes are kept for two days, hours and days for RETENTION_DAYS, but at least 31 days.",
      ),
    ),
    HttpApiEndpoint.get("failing", "/api/v0/endpoints/failing", {
      query: rankingQuery,
      success: Schema.Struct({
        endpoints: Schema.Array(FailingEndpoint).annotate({ description: "The endpoints of this page." }),
        nextCursor,
      }).annotate({ identifier: "FailingEndpointPage" }),
      error: Forbidden,
    }).annotateMerge(
      access.administrator.oversee(
        "List the endpoints that fail most",
        "Endpoints of every org by their failed attempts, the most first.",
      ),
    ),
    HttpApiEndpoint.get("replicas", "/api/v0/replicas", { success: ServiceState, error: Forbidden }).annotateMerge(
      access.administrator.oversee(
        "Read how fast the replicas are",
        "What each replica measured in the last minutes: requests, validations, attempts, and operations of the database; and the " +
          "size of the database. Each replica writes its figures every 20 seconds, so any of them can answer.",
      ),
    ),
    HttpApiEndpoint.get("activeOrgs", "/api/v0/orgs/active", {
      query: { by: measureQuery, ...rankingQuery },
      success: Schema.Struct({
        orgs: Schema.Array(ActiveOrg).annotate({ description: "The orgs of this page." }),
        nextCursor,
      }).annotate({
        identifier: "ActiveOrgPage",
      }),
      error: Forbidden,
    }).annotateMerge(
      access.administrator.oversee(
        "List the orgs that use most",
        "Orgs by attempts, failed attempts, validations or finished jobs, the most first; those without any are not listed. " +
          "Reads at most the newest 500,000 counts of the range.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Activity", description: "What happens, for people." })) {}

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
      .annotateMerge(liveEvents)
      .annotateMerge(
        access.self.read(
          "Follow what changes",
          "Server-sent events: delivery (a recorded attempt and the new state), job, deployment, endpoint. Their data names what changed; " +
            "read it for more. reset: changes may be missing, so read again what you show; a stream without Last-Event-ID begins " +
            "with it. ping: every 15 seconds. A portal session gets deliveries and endpoints. A reader that is 1,000 events behind " +
            "is disconnected. At most 100 readers of an org and 1,000 of a process follow.",
        ),
      ),
  )
  .annotateMerge(OpenApi.annotations({ title: "Live", description: "What changes, as it changes." })) {}
