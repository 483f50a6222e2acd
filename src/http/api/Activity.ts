import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { FailingCursor, FailingEndpoint, Overview, overviewQuery } from "../../domain/activity/Activity.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { pageQuery } from "../../domain/Page.ts"
import { Timestamp } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { access } from "./security.ts"

export class ActivityGroup extends HttpApiGroup.make("activity")
  .add(
    HttpApiEndpoint.get("overview", "/api/v0/overview", {
      query: overviewQuery,
      success: Overview,
      error: [Forbidden, NotFound],
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Read what happened")
      .annotate(
        OpenApi.Description,
        "Deliveries, validations and finished jobs by interval, and the state of the queue: in every org, or in one. At most " +
          "1,000 intervals. Minutes are kept for two days, hours and days for RETENTION_DAYS, but at least 31 days.",
      ),
    HttpApiEndpoint.get("failing", "/api/v0/endpoints/failing", {
      query: {
        since: Schema.optionalKey(Timestamp).annotate({
          description:
            "The start of the range: 30 days ago at most. Default: 24 hours ago. Counts from the start of its hour, or of its day " +
            "if that is longer ago than two days.",
        }),
        limit: pageQuery.limit,
        cursor: Schema.optionalKey(FailingCursor).annotate({
          description: "The next cursor of the previous page. Absent: the first page.",
          examples: ["42.01KAHBMKZ3D2X7S5QN8W4V6R9T"],
        }),
      },
      success: Schema.Struct({
        endpoints: Schema.Array(FailingEndpoint),
        nextCursor: Schema.NullOr(Schema.String).annotate({
          description: "The cursor of the next page. null: this is the last page.",
          examples: [null],
        }),
      }).annotate({ identifier: "FailingEndpointPage" }),
      error: Forbidden,
    })
      .annotateMerge(access.administrator)
      .annotate(OpenApi.Summary, "List the endpoints that fail most")
      .annotate(OpenApi.Description, "Endpoints of every org by their failed attempts, the most first."),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Activity", description: "What happens, for people." })) {}
