import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ask, call, callPages } from "./call.ts"
import { given, page } from "./flags.ts"
import { table } from "./output.ts"

const project = Argument.String("project").pipe(Argument.withDescription("The id of the project"))

const list = Command.make(
  "list",
  {
    project,
    branch: Flag.String("branch").pipe(Flag.withDescription("Only deployments of this branch"), Flag.optional),
    preview: Flag.Boolean("preview").pipe(
      Flag.withDescription("Only previews; --no-preview: no previews"),
      Flag.optional,
    ),
    ...page,
  },
  Effect.fnUntraced(function* ({ branch, preview, project, ...page }) {
    const { answer } = yield* ask((gatehouse) => gatehouse.projects.get({ params: { projectId: project } }))
    yield* callPages(
      page,
      (gatehouse, query) =>
        gatehouse.deployments.list({
          params: { projectId: project },
          query: { ...query, ...given({ branch, preview }) },
        }),
      ({ deployments, nextCursor }) => ({
        table: table(
          ["DEPLOYMENT", "CURRENT", "BRANCH", "PREVIEW", "COMMIT", "PROVIDER", "RUN", "ACTOR", "CREATED"],
          deployments.map((one) => [
            one.id,
            one.id === answer.currentDeploymentId ? "yes" : "no",
            one.branch,
            one.preview ? "yes" : "no",
            one.sha.slice(0, 12),
            one.provider,
            `${one.runId}.${one.runAttempt}`,
            one.actor,
            one.createdAt,
          ]),
        ),
        next: nextCursor,
      }),
    )
  }),
).pipe(Command.withDescription("List the deployments of a project, newest first"))

const promote = Command.make(
  "promote",
  {
    project,
    deployment: Argument.String("deployment").pipe(Argument.withDescription("The id of the deployment")),
  },
  ({ deployment, project }) =>
    call(
      (gatehouse) => gatehouse.deployments.promote({ params: { projectId: project, deploymentId: deployment } }),
      ({ currentDeploymentId, projectId }) => ({
        out: currentDeploymentId ?? "",
        note: `The deployment is current for the project ${projectId}.`,
      }),
    ),
).pipe(
  Command.withDescription("Make a deployment current: promote a preview, or roll back to an older one"),
  Command.withExamples([
    { command: "gatehouse deployments promote 01KAHBMKZ3D2X7S5QN8W4V6R9V 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
  ]),
)

/** Lists and promotes deployments. */
export const deployments = Command.make("deployments").pipe(
  Command.withDescription("Deployments that CI runs have registered"),
  Command.withSubcommands([list, promote]),
)
