import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { JsonWebKeys } from "../../domain/keys/ApiKey.ts"
import { about } from "./access.ts"

const ok = Schema.Boolean.annotate({ description: "true: it works." })
const Ok = Schema.Struct({ ok }).annotate({ identifier: "Ok" })

const Ready = Schema.Struct({
  ok,
  writable: Schema.Boolean.annotate({
    description: "false: the database is read-only, for example a standby. Keys are validated; writes are a 503.",
  }),
  warning: Schema.optionalKey(Schema.String).annotate({
    description: "What is wrong although requests are served, for example notifications that do not arrive.",
  }),
}).annotate({ identifier: "Ready" })

export class SystemGroup extends HttpApiGroup.make("system")
  .add(
    HttpApiEndpoint.get("healthz", "/healthz", { success: Ok }).annotateMerge(
      about.read("Check that the process is alive", "Does not use the database."),
    ),
    HttpApiEndpoint.get("jwks", "/.well-known/jwks.json", { success: JsonWebKeys }).annotateMerge(
      about.read(
        "Get the public keys of tokens",
        "Those that verify tokens of `POST /api/v0/keys/token`. A new key is here an hour before it signs, and an old one until its " +
          "last token has ended. Read them again for an unknown `kid`.",
      ),
    ),
    HttpApiEndpoint.get("readyz", "/readyz", { success: Ready }).annotateMerge(
      about.read(
        "Check that the service is ready",
        "200 if the database answers and its migrations are applied, otherwise 503. A read-only database is a 200, and a pooler that breaks the service a 503 that says so.",
      ),
    ),
  )
  .annotateMerge(OpenApi.annotations({ title: "System", description: "For load balancers and orchestrators." })) {}
