import { assert, describe } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Database } from "#src/infrastructure/database/Database.ts"
import { freshFolder, freshPostgres, isShutDown } from "../../support/databases.ts"
import { it } from "../../support/it.ts"

/** Promise (Answered is stored): In a power cut, the embedded database loses nothing that was answered. */

const writer = fileURLToPath(new URL("../../support/writer.ts", import.meta.url))

/**
 * Runs the writer until `count` writes are answered, sends it the signal, and returns the ids of all answered writes.
 */
const acknowledged = (place: string, count: number, signal: "SIGKILL" | "SIGTERM") =>
  Effect.promise(async () => {
    const child = spawn(process.execPath, [writer, place], { stdio: ["ignore", "pipe", "inherit"] })
    const ids: Array<number> = []
    const lines = createInterface(child.stdout)
    lines.on("line", (line) => {
      if (!/^\d+$/.test(line)) return // This is a log line.
      if (ids.push(Number(line)) === count) child.kill(signal)
    })
    const [code, by] = (await Promise.all([once(child, "exit"), once(lines, "close")]))[0]
    return { ids, ending: by ?? code }
  })

const places = {
  embedded: { place: freshFolder(), options: (dataDir: string) => ({ dataDir }), isClosed: isShutDown },
  postgres: {
    place: freshPostgres(),
    options: (url: string) => ({ databaseUrl: Redacted.make(url), dataDir: "unused" }),
    isClosed: () => true,
  },
}

/** In milliseconds: an engine starts slowly on a busy machine. */
const SLOW = 90_000

describe.each(Object.entries(places))("%s", (_kind, { isClosed, options, place }) => {
  it.live.each(["SIGKILL", "SIGTERM"] as const)(
    "no answered write is lost by %s",
    function* (signal) {
      const where = yield* place
      const written = yield* acknowledged(where, 300, signal)
      assert.strictEqual(written.ending, signal === "SIGKILL" ? "SIGKILL" : 130)
      if (signal === "SIGTERM") assert.isTrue(isClosed(where), "shut down in order")
      const missing = yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const rows = yield* sql<{ id: number; pair: number }>`SELECT id, pair FROM acknowledged`
        const there = new Set(rows.map((row) => row.id))
        for (const id of there) if (id % 4 === 2) assert.isTrue(there.has(id + 1), "a transaction is complete")
        return written.ids.filter((id) => !there.has(id))
      }).pipe(Effect.provide(Database.layer(options(where))))
      assert.isAtLeast(written.ids.length, 300)
      assert.deepStrictEqual(missing, [])
    },
    SLOW,
  )
})
