import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { counted } from "../domain/plural.ts"
import { failure, print, usage } from "./output.ts"

/** Copies the embedded database to PostgreSQL. */
export const moveData = Command.make(
  "move-data",
  {},
  Effect.fnUntraced(function* () {
    const { dataDir, databaseUrl, encryptionKeys = [] } = yield* Config.load
    if (databaseUrl === undefined) return yield* usage("Set DATABASE_URL to the PostgreSQL that gets the data")
    // Imported here: the other commands start faster without the service's modules.
    const [{ moveData }, { describeSqlError }] = yield* Effect.promise(() =>
      Promise.all([
        import("../infrastructure/copyTables.ts"),
        import("../infrastructure/database/PostgresDatabase.ts"),
      ]),
    )
    const tables = yield* moveData(dataDir, databaseUrl, encryptionKeys, (name, rows) =>
      rows === 0 ? Effect.void : Console.error(`${name}: ${counted(rows, "row")}`),
    ).pipe(
      Effect.catchTags({
        SqlError: (error) =>
          failure(
            `The database failed: ${describeSqlError(error)}. Nothing was copied: correct this, and run this command again`,
          ),
        NotMoved: ({ message }) => failure(message),
      }),
    )
    yield* print(JSON.stringify({ tables }), {
      out: "",
      note: `Everything is copied. Start the service with the same DATABASE_URL and ENCRYPTION_KEY, and never again on ${dataDir}: both would send the pending deliveries.`,
    })
  }),
).pipe(
  Command.withDescription(
    "Copy the embedded database of DATA_DIR, whose service is stopped, to the empty PostgreSQL of DATABASE_URL. Reads the environment variables of serve",
  ),
)
