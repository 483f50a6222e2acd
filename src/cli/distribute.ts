import { Effect, Logger } from "effect"
import { Command, Flag } from "effect/cli"
import * as Config from "../boot/config.ts"
import type { Plan } from "../infrastructure/database/citus/distribute.ts"
import { StartupError } from "../infrastructure/StartupError.ts"
import { print } from "./output.ts"

const number = new Intl.NumberFormat("en")

const describe = ({ shards, isDone, missing, nodes, rows }: Plan) => {
  if (isDone) return `The database is distributed: ${shards} shards on ${nodes.join(", ")}. There is nothing to do.`
  const filled = rows.filter((table) => table.rows > 0)
  return [
    `${shards} shards on ${nodes.join(", ")}; ${missing.length} of them are to be created.`,
    ...filled.map((table) => `About ${number.format(table.rows)} rows of ${table.table} are to be moved.`),
  ].join("\n")
}

/** Distributes the database of DATABASE_URL over the nodes of Citus. */
export const distribute = Command.make(
  "distribute",
  {
    shards: Flag.Int("shards").pipe(
      // The name of earlier versions.
      Flag.withAlias("buckets"),
      Flag.withDescription("The number of shards, which cannot change later: 1 to 1024"),
      Flag.withDefault(64),
    ),
    plan: Flag.Boolean("plan").pipe(
      Flag.withDescription("Print what the command would do, and change nothing"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ shards, plan: isPlanOnly }) {
    const { databaseUrl } = yield* Config.load
    if (databaseUrl === undefined) return yield* new StartupError({ message: "DATABASE_URL is not set" })
    if (shards < 1 || shards > 1024) return yield* new StartupError({ message: "--shards must be from 1 to 1024" })
    // Imported here: the other commands start faster without the service's modules.
    const { run } = yield* Effect.promise(() => import("../infrastructure/database/citus/distribute.ts"))
    const logger = Logger.layer([Logger.withConsoleError(Logger.formatSimple)])
    const services = yield* Effect.context<Effect.Services<ReturnType<typeof print>>>()
    const { isDone } = yield* run(databaseUrl, {
      shards,
      isPlanOnly,
      onPlan: (plan) => Effect.provide(print(JSON.stringify(plan), { out: describe(plan) }), services),
      onStep: (step) => Effect.logInfo(step),
    }).pipe(Effect.provide(logger))
    if (isPlanOnly || isDone) return
    yield* print(JSON.stringify({ distributed: true }), { out: "The database is distributed. Start the service." })
  }),
).pipe(
  Command.withDescription(
    "Distribute the database of DATABASE_URL over the nodes of Citus; run it again if it was interrupted",
  ),
)
