import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Deployment } from "../../domain/deployments/Deployment.ts"
import { Forbidden, LimitReached, NotFound, Unauthorized } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { Registration } from "../../domain/deployments/Registration.ts"
import { Id } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { furtherFieldsIgnored } from "./parseOptions.ts"
import { access } from "./security.ts"

export class DeploymentsGroup extends HttpApiGroup.make("deployments")
  .add(
    HttpApiEndpoint.post("register", "/api/v0/register-deployment", {
      headers: { authorization: Schema.optionalKey(Schema.String), "x-api-key": Schema.optionalKey(Schema.String) },
      payload: Schema.Record(Schema.String, Schema.Unknown).annotate({
        identifier: "RegisterDeployment",
        description: "An empty object: everything comes from the token.",
        examples: [{}],
      }),
      success: Registration,
      error: [Unauthorized, LimitReached],
    })
      .middleware(Authorization)
      .annotateMerge(access.ci)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(1))
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotate(OpenApi.Summary, "Register a deployment from CI")
      .annotate(
        OpenApi.Description,
        "The credential is the OIDC token of the run (Authorization: Bearer <jwt>), verified with GitHub's published keys. " +
          "Repository, branch and run come from its claims. The same run gets the same answer again.",
      ),
    HttpApiEndpoint.get("list", "/api/v0/projects/:projectId/deployments", {
      params: { projectId: Id },
      query: pageQuery,
      success: Schema.Struct({ deployments: Schema.Array(Deployment), nextCursor: NextCursor }).annotate({
        identifier: "DeploymentPage",
      }),
      error: [Forbidden, NotFound],
    })
      .middleware(Authorization)
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "List the deployments of a project")
      .annotate(OpenApi.Description, "Newest first."),
  )
  .annotateMerge(OpenApi.annotations({ title: "Deployments", description: "Deployments that CI runs register." })) {}
