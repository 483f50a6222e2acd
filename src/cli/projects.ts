import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Project } from "../domain/projects/Project.ts"
import { call, callPages } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given, page } from "./flags.ts"
import { plain, table } from "./output.ts"

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

const project = Argument.String("project").pipe(Argument.withDescription("The id of the project"))

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

const link = Command.make(
  "link",
  {
    project,
    repository: Argument.String("repository").pipe(
      Argument.withDescription("The repository as owner/name; none removes the link"),
    ),
  },
  Effect.fnUntraced(function* ({ project, repository }) {
    const [hostOwner = "", hostRepo = "", ...rest] = repository.split("/")
    const isNone = repository === "none"
    if (!isNone && (hostOwner === "" || hostRepo === "" || rest.length > 0)) {
      return yield* usage(`"${plain(repository)}" is not a repository. Write it as owner/name, or none`)
    }
    const payload = isNone ? { hostOwner: null, hostRepo: null } : { hostOwner, hostRepo }
    yield* call(
      (gatehouse) => gatehouse.projects.update({ params: { projectId: project }, payload }),
      (changed) => ({
        out: "",
        note: isNone ? "The project is linked to no repository." : `The project is linked to ${repositoryOf(changed)}.`,
      }),
    )
  }),
).pipe(
  Command.withDescription("Link a repository to a project before its first CI run"),
  Command.withExamples([{ command: "gatehouse projects link 01KAHBMKZ3D2X7S5QN8W4V6R9T octo-org/docs" }]),
)

/** Creates, shows, lists, changes and links projects. */
export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects, which have keys and deployments"),
  Command.withSubcommands([create, list, show, update, link]),
)
