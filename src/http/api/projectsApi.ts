import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Conflict, Forbidden, LimitReached, NotFound } from "../../domain/Errors.ts"
import { PutRepositoryLink, RepositoryLink } from "../../domain/projects/RepositoryLink.ts"
import { NextCursor, pageQuery } from "../../domain/Page.ts"
import { CreateProject, Project, UpdateProject } from "../../domain/projects/Project.ts"
import { OrgId, ProjectId } from "../../domain/Schemas.ts"
import { Deleted } from "./responses.ts"
import { access, Authorization, Idempotent } from "./access.ts"

export class ProjectsGroup extends HttpApiGroup.make("projects")
  .add(
    HttpApiEndpoint.post("create", "/api/v0/projects", {
      payload: CreateProject,
      success: Project,
      error: [Forbidden, NotFound, LimitReached],
    })
      .middleware(Idempotent)
      .annotateMerge(
        access.management.change(
          "Create a project",
          "Creates a project in the given org, otherwise in the org of the key or the person, otherwise in the default org. The " +
            "default org is created when there is none, whatever other orgs there are.",
        ),
      ),
    HttpApiEndpoint.get("list", "/api/v0/projects", {
      query: {
        ...pageQuery,
        orgId: Schema.optionalKey(OrgId.annotate({ description: "Only projects of this org. Absent: all." })),
      },
      success: Schema.Struct({
        projects: Schema.Array(Project).annotate({ description: "The projects of this page, the oldest first." }),
        nextCursor: NextCursor,
      }).annotate({
        identifier: "ProjectPage",
      }),
      error: [Forbidden, NotFound],
    }).annotateMerge(access.management.read("List projects", "Oldest first: all projects, or those of one org.")),
    HttpApiEndpoint.get("get", "/api/v0/projects/:projectId", {
      params: { projectId: ProjectId },
      success: Project,
      error: [Forbidden, NotFound],
    }).annotateMerge(access.management.read("Get a project")),
    HttpApiEndpoint.patch("update", "/api/v0/projects/:projectId", {
      params: { projectId: ProjectId },
      payload: UpdateProject,
      success: Project,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    }).annotateMerge(
      access.management.change(
        "Change a project",
        "Absent fields stay; null clears a field. hostOwner with hostRepo links a repository before its first CI run, " +
          "and keeps its pins. A repository that is linked to another project is a 409. In guarded mode, an org key links only repositories of " +
          "its org's owners; another one is a 403.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/projects/:projectId", {
      params: { projectId: ProjectId },
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.manage(
        "Delete a project",
        "Deletes the project with everything in it, for good. From the response on, its keys are refused at every " +
          "replica, and its subdomain and repository are free. Its rows are erased in the background, within an hour.",
      ),
    ),
    HttpApiEndpoint.get("getLink", "/api/v0/projects/:projectId/link", {
      params: { projectId: ProjectId },
      success: RepositoryLink,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "Get the repository of a project",
        "Returns the linked repository and its pins. A project without a link is a 404.",
      ),
    ),
    HttpApiEndpoint.put("putLink", "/api/v0/projects/:projectId/link", {
      params: { projectId: ProjectId },
      payload: PutRepositoryLink,
      success: RepositoryLink,
      error: [Forbidden, NotFound, Conflict, LimitReached],
    }).annotateMerge(
      access.management.manage(
        "Link a project to a repository",
        "Links a repository of any configured CI provider, and sets the pins; an absent pin is removed. A run of another " +
          "workflow or environment than the pinned ones registers as a preview, and never becomes current. A repository " +
          "that is linked to another project is a 409. In guarded mode, an org key links only repositories of its org's " +
          "owners; another one is a 403.",
      ),
    ),
    HttpApiEndpoint.delete("removeLink", "/api/v0/projects/:projectId/link", {
      params: { projectId: ProjectId },
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.manage(
        "Unlink the repository of a project",
        "Removes the link, its pins, and what its runs have proved. Deployments stay. A project without a link is a 404.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Projects", description: "Projects have keys and deployments." })) {}
