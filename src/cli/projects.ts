import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Project } from "../domain/projects/Project.ts"
import { call, callPages } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { table } from "./output.ts"
import { docs } from "./projectDocs.ts"
import { link, project, unlink } from "./projectLinks.ts"

const org = Flag.String("org").pipe(Flag.withDescription("The id of the org"), Flag.optional)

const create = Command.make(
  "create",
  { name: Argument.String("name").pipe(Argument.withDescription("The name of the project")), org },
  ({ name, org }) =>
    call(
      (gatehouse) => gatehouse.projects.create({ payload: { name, ...given({ orgId: org }) } }),
      ({ orgId, projectId }) => ({
        out: projectId,
        note: `The project is created in the org ${orgId}. To create a key: gatehouse keys create ci --project ${projectId}`,
      }),
    ),
).pipe(
  Command.withDescription("Create a project, in the default org unless --org is set"),
  Command.withExamples([{ command: "gatehouse projects create docs" }]),
)

const repositoryOf = ({ hostOwner, hostRepo }: Project) => (hostOwner === null ? null : `${hostOwner}/${hostRepo}`)

const headings = ["PROJECT", "NAME", "REPOSITORY", "BRANCH", "CURRENT DEPLOYMENT", "ORG"]
const rowOf = (project: Project) => [
  project.projectId,
  project.name,
  repositoryOf(project),
  project.defaultBranch,
  project.currentDeploymentId,
  project.orgId,
]

const list = Command.make("list", { org, ...page }, ({ org, ...page }) =>
  callPages(
    page,
    (gatehouse, query) => gatehouse.projects.list({ query: { ...query, ...given({ orgId: org }) } }),
    ({ nextCursor, projects }) => ({ table: table(headings, projects.map(rowOf)), next: nextCursor }),
  ),
).pipe(Command.withDescription("List projects, oldest first"))

const show = Command.make("get", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.get({ params: { projectId: project } }),
    (found) => ({ out: table(headings, [rowOf(found)]), note: undefined }),
  ),
).pipe(Command.withDescription("Show a project"))

/** Text that a flag sets, or `none` to clear the field. */
const orNone = (text: Option.Option<string>) => Option.map(text, (one) => (one === "none" ? null : one))

const update = Command.make(
  "update",
  {
    project,
    name: Flag.String("name").pipe(Flag.withDescription("The new name"), Flag.optional),
    defaultBranch: Flag.String("default-branch").pipe(
      Flag.withDescription("The branch whose deployments become current; none clears it"),
      Flag.optional,
    ),
    subdomain: Flag.String("subdomain").pipe(Flag.withDescription("A DNS label; none clears it"), Flag.optional),
  },
  Effect.fnUntraced(function* ({ defaultBranch, name, project, subdomain }) {
    const payload = given({ name, defaultBranch: orNone(defaultBranch), subdomain: orNone(subdomain) })
    if (Object.keys(payload).length === 0) {
      return yield* usage("Nothing to change: set --name, --default-branch or --subdomain")
    }
    yield* call(
      (gatehouse) => gatehouse.projects.update({ params: { projectId: project }, payload }),
      (changed) => ({ out: table(headings, [rowOf(changed)]), note: "The project is changed." }),
    )
  }),
).pipe(Command.withDescription("Change a project; other fields stay"))

const remove = Command.make("delete", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.remove({ params: { projectId: project } }),
    () => ({ out: project, note: "The project is deleted with its keys and deployments." }),
  ),
).pipe(Command.withDescription("Delete a project with its keys and deployments, for good"))

/** Creates, shows, lists, changes, links and deletes projects. */
export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects, which have keys and deployments"),
  Command.withSubcommands([create, list, show, update, link, unlink, docs, remove]),
)
