import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ProjectDocs, PutProjectDocs } from "../../domain/docs/ProjectDocs.ts"
import { Forbidden, NotFound } from "../../domain/Errors.ts"
import { Id } from "../../domain/Schemas.ts"
import { Authorization } from "./middleware.ts"
import { Deleted } from "./responses.ts"
import { access } from "./security.ts"

const params = { projectId: Id }

export class ProjectDocsGroup extends HttpApiGroup.make("docs")
  .add(
    HttpApiEndpoint.get("get", "/api/v0/projects/:projectId/docs", {
      params,
      success: ProjectDocs,
      error: [Forbidden, NotFound],
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Get the documentation of a project")
      .annotate(
        OpenApi.Description,
        "Returns the settings, what is stored, and why the last fetch failed. A project without documentation is a 404.",
      ),
    HttpApiEndpoint.put("put", "/api/v0/projects/:projectId/docs", {
      params,
      payload: PutProjectDocs,
      success: ProjectDocs,
      error: [Forbidden, NotFound],
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Store the documentation of a project")
      .annotate(
        OpenApi.Description,
        "Sets where the documentation is; an absent field has its default (null, false). Gatehouse fetches the zip in the " +
          "background: after each such request, and once for each new current deployment. A failed fetch is repeated six " +
          "times within five hours. Chats with a key of the project that send no documentation are answered from what is " +
          "stored. Its size counts toward LIMIT_STORED_BYTES.",
      ),
    HttpApiEndpoint.delete("remove", "/api/v0/projects/:projectId/docs", {
      params,
      success: Deleted,
      error: [Forbidden, NotFound],
    })
      .annotateMerge(access.management)
      .annotate(OpenApi.Summary, "Remove the documentation of a project")
      .annotate(
        OpenApi.Description,
        "Removes the settings, the stored pages and the questions of readers, for good. Nobody reads them from the answer on; " +
          "their rows are erased in the background.",
      ),
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Documentation",
      description: "Documentation that is stored with a project.",
    }),
  ) {}
