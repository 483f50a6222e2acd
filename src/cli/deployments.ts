import { Argument, Command } from "effect/cli"
import { callPages } from "./call.ts"
import { page } from "./flags.ts"
import { table } from "./output.ts"

const list = Command.make(
  "list",
  { project: Argument.String("project").pipe(Argument.withDescription("The id of the project")), ...page },
  ({ project, ...page }) =>
    callPages(
      page,
      (gatehouse, query) => gatehouse.deployments.list({ params: { projectId: project }, query }),
      ({ deployments, nextCursor }) => ({
        table: table(
          ["DEPLOYMENT", "BRANCH", "PREVIEW", "COMMIT", "RUN", "ACTOR", "CREATED"],
          deployments.map((one) => [
            one.id,
            one.branch,
            one.preview ? "yes" : "no",
            one.sha.slice(0, 12),
            `${one.runId}/${one.runAttempt}`,
            one.actor,
            one.createdAt,
          ]),
        ),
        next: nextCursor,
      }),
    ),
).pipe(Command.withDescription("List the deployments of a project, newest first"))

/** Lists deployments. */
export const deployments = Command.make("deployments").pipe(
  Command.withDescription("Deployments that CI runs registered"),
  Command.withSubcommands([list]),
)
