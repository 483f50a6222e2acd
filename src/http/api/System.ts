import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

const Ok = Schema.Struct({ ok: Schema.Boolean }).annotate({ identifier: "Ok" })

const Ready = Schema.Struct({
  ok: Schema.Boolean,
  writable: Schema.Boolean.annotate({
    description: "false: the database can only be read, as a standby can. Keys are validated; what writes is a 503.",
  }),
}).annotate({ identifier: "Ready" })

export class SystemGroup extends HttpApiGroup.make("system")
  .add(
    HttpApiEndpoint.get("healthz", "/healthz", { success: Ok })
      .annotate(OpenApi.Summary, "The process lives")
      .annotate(OpenApi.Description, "Asks nothing of the database."),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Ready })
      .annotate(OpenApi.Summary, "Requests can be served")
      .annotate(
        OpenApi.Description,
        "The database answers and its migrations are in; 503 otherwise. A database that can only be read is a 200.",
      ),
  )
  .annotateMerge(OpenApi.annotations({ title: "System", description: "For load balancers and orchestrators." })) {}
