import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

const Ok = Schema.Struct({ ok: Schema.Boolean }).annotate({ identifier: "Ok" })

export class SystemGroup extends HttpApiGroup.make("system")
  .add(
    HttpApiEndpoint.get("healthz", "/healthz", { success: Ok })
      .annotate(OpenApi.Summary, "The process lives")
      .annotate(OpenApi.Description, "Asks nothing of the database."),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Ok })
      .annotate(OpenApi.Summary, "Requests can be served")
      .annotate(OpenApi.Description, "The database answers and its migrations are in; 503 otherwise."),
  )
  .annotateMerge(OpenApi.annotations({ title: "System", description: "For load balancers and orchestrators." })) {}
