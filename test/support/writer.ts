import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "../../src/infrastructure/database/Database.ts"

/**
 * A process that writes rows, some in transactions, and prints each id once its write is answered, until it is killed.
 * Its argument is a PostgreSQL URL or a DATA_DIR.
 */
const place = process.argv[2]!
const layer = Database.layer(
  place.startsWith("postgres") ? { databaseUrl: Redacted.make(place), dataDir: "unused" } : { dataDir: place },
)

const write = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE IF NOT EXISTS acknowledged (id int primary key, pair int)`
  const insert = (id: number, pair: number) => sql`INSERT INTO acknowledged (id, pair) VALUES (${id}, ${pair})`
  let next = 0
  const fiber = Effect.gen(function* () {
    const id = next
    next += 2
    // Writes one row, or both rows of a pair.
    if (id % 4 === 0) yield* insert(id, id)
    else yield* sql.withTransaction(Effect.andThen(insert(id, id), insert(id + 1, id)))
    yield* Console.log(id)
  })
  yield* Effect.all(
    Array.from({ length: 8 }, () => Effect.forever(fiber)),
    { concurrency: "unbounded" },
  )
})

NodeRuntime.runMain(Effect.provide(write, layer))
