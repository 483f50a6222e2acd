import { ByteSize, Schema } from "effect"
import { HttpIncomingMessage } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Deployment, Registration } from "../../domain/deployments/Deployment.ts"
import { Forbidden, LimitReached, NotFound, Unauthorized } from "../../domain/Errors.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { Project } from "../../domain/projects/Project.ts"
import { atMost, DeploymentId, NonEmptyText, ProjectId } from "../../domain/Schemas.ts"
import { access, Authorization } from "./access.ts"
import { furtherFieldsIgnored } from "./responses.ts"

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
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.kibibytes(1))
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotateMerge(
        access.ci.nobody(
          "Register a deployment from CI",
          "The credential is the OIDC token of the run (Authorization: Bearer <jwt>), verified with the published keys of its CI provider. " +
            "Repository, branch and run come from its claims. The same run gets the same response again.",
        ),
      ),
    HttpApiEndpoint.get("list", "/api/v0/projects/:projectId/deployments", {
      params: { projectId: ProjectId },
      query: {
        ...pageQuery,
        branch: Schema.optionalKey(
          NonEmptyText.check(atMost(1024)).annotate({
            description: "Only deployments of this branch or tag.",
            examples: ["main"],
          }),
        ),
        preview: Schema.optionalKey(Schema.Boolean).annotateKey({
          description: "true: only previews. false: no previews. Absent: all.",
        }),
      },
      success: Schema.Struct({
        deployments: Schema.Array(Deployment).annotate({
          description: "The deployments of this page, the newest first.",
        }),
        nextCursor: NextCursor,
      }).annotate({
        identifier: "DeploymentPage",
      }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "List the deployments of a project",
        "Newest first, of one branch if asked for, with or without previews.",
      ),
    ),
    HttpApiEndpoint.post("promote", "/api/v0/projects/:projectId/deployments/:deploymentId/promote", {
      params: { projectId: ProjectId, deploymentId: DeploymentId },
      success: Project,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.change(
        "Promote a deployment, or roll back",
        "Makes any deployment of the project current, also a preview or an older one. Every replica reads it at once. A " +
          "run that is older than the newest one that was ever current does not undo it; a newer run becomes current.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Deployments", description: "Deployments that CI runs register." })) {}
