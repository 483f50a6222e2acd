import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, type Redacted } from "effect"
import { Migrator, SqlClient } from "effect/sql"
import { readdir } from "node:fs/promises"
import * as EmbeddedDatabase from "./EmbeddedDatabase.ts"
import { StartupError } from "./StartupError.ts"

/** Where the data is. */
export interface DatabaseOptions {
  /** A PostgreSQL URL; absent: the embedded database in `dataDir`. */
  readonly databaseUrl?: Redacted.Redacted<string> | undefined
  /** The embedded database's folder, or `memory` to keep nothing. */
  readonly dataDir: string
}

/** The database behind the repositories: which one it is, and whether it can be used just now. */
export class Database extends Context.Service<
  Database,
  {
    readonly kind: "postgres" | "embedded"
    /** Succeeds when the database answers and its migrations are in; fails within two seconds otherwise. */
    readonly ready: Effect.Effect<void, unknown>
  }
>()("gatehouse/infrastructure/Database") {
  /**
   * The database named by the options, migrated: PostgreSQL or the embedded one.
   * Bind the result to a const; layers are shared by reference.
   */
  static readonly layer = (
    options: DatabaseOptions,
  ): Layer.Layer<Database | PgClient.PgClient | SqlClient.SqlClient, StartupError> => {
    const client =
      options.databaseUrl === undefined
        ? PgClient.layerFrom(
            Effect.flatMap(EmbeddedDatabase.make(options.dataDir), (embedded) =>
              PgClient.make({
                stream: embedded.connect,
                ssl: false,
                username: "postgres",
                minConnections: 1,
                maxConnections: 1,
                multiplex: true,
                multiplexConcurrency: 1024,
              }),
            ),
          )
        : PgClient.layer({ url: options.databaseUrl, maxConnections: 10, multiplex: true, multiplexConcurrency: 8 })
    return Layer.effect(
      Database,
      Effect.gen(function* () {
        yield* migrate
        const sql = yield* SqlClient.SqlClient
        return Database.of({
          kind: options.databaseUrl === undefined ? "embedded" : "postgres",
          ready: sql`select 1`.pipe(Effect.timeout("2 seconds"), Effect.asVoid),
        })
      }),
    ).pipe(
      Layer.provideMerge(client),
      Layer.catchTag("SqlError", (cause) =>
        Layer.effectContext(new StartupError({ message: `The database does not answer: ${cause.message}`, cause })),
      ),
    )
  }
}

const folder = new URL("./migrations/", import.meta.url)

const loader = Effect.flatMap(
  Effect.promise(() => readdir(folder).catch(() => [] as Array<string>)),
  (names) =>
    Migrator.fromGlob(
      Object.fromEntries(
        names
          .filter((name) => /^\d+_.+\.[jt]s$/.test(name) && !name.endsWith(".d.ts"))
          .map((name) => [name, () => import(new URL(name, folder).href)]),
      ),
    ),
)

const migrate = Migrator.make({})({ loader, table: "migrations" }).pipe(
  Effect.catchTag("MigrationError", (cause) => Effect.fail(new StartupError({ message: cause.message, cause }))),
)
