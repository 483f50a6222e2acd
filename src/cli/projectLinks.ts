import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { RepositoryLink } from "../domain/deployments/RepositoryLink.ts"
import { call } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { given } from "./flags.ts"
import { table } from "./output.ts"

/** The argument of commands about one project. */
export const project = Argument.String("project").pipe(Argument.withDescription("The id of the project"))

const pin = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

const linkOutput = ({ environment, hostOwner, hostRepo, provider, workflow }: RepositoryLink) => ({
  out: table(
    ["PROVIDER", "REPOSITORY", "WORKFLOW", "ENVIRONMENT"],
    [[provider, `${hostOwner}/${hostRepo}`, workflow, environment]],
  ),
  note: "",
})

/** Links a project to a repository, or shows its link. */
export const link = Command.make(
  "link",
  {
    project,
    repository: Argument.String("repository").pipe(
      Argument.withDescription("The repository as owner/name; absent: show the link"),
      Argument.optional,
    ),
    provider: Flag.String("provider").pipe(
      Flag.withDescription("The CI provider of the repository (default: github)"),
      Flag.withDefault("github"),
    ),
    workflow: pin("workflow", "The only workflow whose runs may become current: .github/workflows/deploy.yml"),
    environment: pin("environment", "The only environment whose runs may become current: production"),
  },
  Effect.fnUntraced(function* ({ environment, project, provider, repository, workflow }) {
    const params = { projectId: project }
    if (Option.isNone(repository)) {
      return yield* call((gatehouse) => gatehouse.projects.getLink({ params }), linkOutput)
    }
    const slash = repository.value.lastIndexOf("/")
    if (slash < 1) return yield* usage("The repository must have the form owner/name")
    const [hostOwner, hostRepo] = [repository.value.slice(0, slash), repository.value.slice(slash + 1)]
    const payload = { provider, hostOwner, hostRepo, ...given({ workflow, environment }) }
    return yield* call((gatehouse) => gatehouse.projects.putLink({ params, payload }), linkOutput)
  }),
).pipe(
  Command.withDescription("Link a project to a repository, with pins; or show its link"),
  Command.withExamples([
    { command: "gatehouse projects link 01KAHBMKZ3D2X7S5QN8W4V6R9V octo-org/docs --environment production" },
  ]),
)

/** Removes the link of a project. */
export const unlink = Command.make("unlink", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.removeLink({ params: { projectId: project } }),
    () => ({ out: project, note: "No repository is linked to the project." }),
  ),
).pipe(Command.withDescription("Remove the link of a project"))
