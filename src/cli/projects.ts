import { Argument, Command, Flag } from "effect/cli"
import { call } from "./call.ts"
import { given, page } from "./flags.ts"
import { more, table } from "./output.ts"

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

const list = Command.make("list", { org, ...page }, ({ cursor, limit, org }) =>
  call(
    (gatehouse) => gatehouse.projects.list({ query: { limit, ...given({ orgId: org, cursor }) } }),
    ({ nextCursor, projects }) => ({
      out: table(
        ["PROJECT", "NAME", "REPOSITORY", "BRANCH", "CURRENT DEPLOYMENT", "ORG"],
        projects.map((project) => [
          project.projectId,
          project.name,
          project.hostOwner === null ? null : `${project.hostOwner}/${project.hostRepo}`,
          project.defaultBranch,
          project.currentDeploymentId,
          project.orgId,
        ]),
      ),
      note: more(nextCursor),
    }),
  ),
).pipe(Command.withDescription("List projects, oldest first"))

/** Creates and lists projects. */
export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects, which have keys and deployments"),
  Command.withSubcommands([create, list]),
)
