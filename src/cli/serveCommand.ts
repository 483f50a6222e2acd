import { Effect } from "effect"
import { Command } from "effect/cli"

/** Runs the service. Imported on use: its modules are most of the program. */
export const serve = Command.make("serve", {}, () =>
  Effect.flatMap(
    Effect.promise(() => import("../boot/serve.ts")),
    (service) => service.serve,
  ),
).pipe(Command.withDescription("Run the service with the environment variables PORT, HOST, DATABASE_URL, …"))
