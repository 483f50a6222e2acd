import { Effect, Layer, Logger } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { json, rateLimited } from "../infrastructure/telemetry/Telemetry.ts"
import { print } from "./output.ts"

/** Migrates the database and exits, for deployments that migrate before the new version starts. */
export const migrate = Command.make(
  "migrate",
  {},
  Effect.fnUntraced(function* () {
    const settings = yield* Config.load
    const { Database } = yield* Effect.promise(() => import("../infrastructure/database/Database.ts"))
    const { applied } = yield* Effect.promise(() => import("../infrastructure/database/Migrations.ts"))
    const logger = rateLimited(Logger.withConsoleError(settings.logFormat === "json" ? json : Logger.formatSimple))
    const { Nodes } = yield* Effect.promise(() => import("../infrastructure/database/Nodes.ts"))
    const allNodes = Effect.flatMap(Nodes, ({ all }) => Effect.forEach(all, ({ migrated }) => migrated))
    const migration = yield* Effect.andThen(allNodes, applied).pipe(
      Effect.orDie,
      Effect.provide(Layer.provideMerge(Database.layer(settings), Logger.layer([logger]))),
    )
    yield* print(JSON.stringify({ migration }), { out: `The database is at migration ${migration}, the newest.` })
  }),
).pipe(Command.withDescription("Migrate the database of DATABASE_URL or DATA_DIR, and exit"))
