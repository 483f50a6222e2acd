import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ActiveOrg, measureQuery } from "../../domain/activity/ActiveOrg.ts"
import { FailingEndpoint, Overview, overviewQuery, RankCursor } from "../../domain/activity/Activity.ts"
import { ServiceState } from "../../domain/activity/Replica.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { pageQuery } from "../../domain/Page.ts"
import { Timestamp } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { access } from "./security.ts"

/** The range and the page of a ranking. */
const rankingQuery = {
  since: Schema.optionalKey(Timestamp).annotate({
    description:
      "The start of the range: 30 days ago at most. Default: 24 hours ago. Counts from the start of its hour, or of its day " +
      "if that is longer ago than two days.",
  }),
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
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Read what happened")
      .annotate(
        OpenApi.Description,
        "Deliveries, validations and finished jobs by interval, and the state of the queue: in every org, or in one. At most " +
          "1,000 intervals. Minutes are kept for two days, hours and days for RETENTION_DAYS, but at least 31 days.",
      ),
    HttpApiEndpoint.get("failing", "/api/v0/endpoints/failing", {
      query: rankingQuery,
      success: Schema.Struct({
        endpoints: Schema.Array(FailingEndpoint),
        nextCursor,
      }).annotate({ identifier: "FailingEndpointPage" }),
      error: Forbidden,
    })
      .annotateMerge(access.administrator)
      .annotate(OpenApi.Summary, "List the endpoints that fail most")
      .annotate(OpenApi.Description, "Endpoints of every org by their failed attempts, the most first."),
    HttpApiEndpoint.get("replicas", "/api/v0/replicas", { success: ServiceState, error: Forbidden })
      .annotateMerge(access.administrator)
      .annotate(OpenApi.Summary, "Read how fast the replicas are")
      .annotate(
        OpenApi.Description,
        "What each replica measured in the last minutes: requests, validations, attempts, and operations of the database; and the " +
          "size of the database. Each replica writes its figures every 20 seconds, so any of them can answer.",
      ),
    HttpApiEndpoint.get("activeOrgs", "/api/v0/orgs/active", {
      query: { by: measureQuery, ...rankingQuery },
      success: Schema.Struct({ orgs: Schema.Array(ActiveOrg), nextCursor }).annotate({
        identifier: "ActiveOrgPage",
      }),
      error: Forbidden,
    })
      .annotateMerge(access.administrator)
      .annotate(OpenApi.Summary, "List the orgs that use most")
      .annotate(
        OpenApi.Description,
        "Orgs by attempts, failed attempts, validations or finished jobs, the most first; those without any are not listed. " +
          "Reads at most the newest 500,000 counts of the range.",
      ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Activity", description: "What happens, for people." })) {}
