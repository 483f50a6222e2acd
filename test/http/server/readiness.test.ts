import { expect } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { layer } from "../../support/it.ts"
import { embedded, onPostgres, TestServer } from "../../support/server.ts"
import type { WireAnswer } from "../../support/wire.ts"
import { must } from "../operations.ts"

const readyz = Effect.flatMap(TestServer, ({ send }) => send("GET", "/readyz"))

/** Repeats a request until it is a 200: ended connections are opened again, and a busy machine answers late. */
const soon = <R>(answer: Effect.Effect<WireAnswer, Error, R>) =>
  answer.pipe(
    Effect.filterOrFail(
      ({ status }) => status === 200,
      ({ text }) => text,
    ),
    Effect.retry({ schedule: Schedule.spaced("50 millis"), times: 200 }),
  )

/** Makes every session read-only from now on, like those of a standby. */
const embeddedReadOnly = Effect.flatMap(TestServer, ({ sql }) => sql`SET default_transaction_read_only = on`)
const postgresReadOnly = Effect.gen(function* () {
  const { sql } = yield* TestServer
  const [database] = yield* sql<{ name: string }>`SELECT current_database() AS name`
  yield* sql`ALTER DATABASE ${sql(database!.name)} SET default_transaction_read_only = on`
  // Ends all sessions, including this one: its error is ignored.
  yield* sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()`.pipe(
    Effect.andThen(sql`SELECT pg_terminate_backend(pg_backend_pid())`),
    sql.withTransaction,
    Effect.exit,
  )
})

for (const [name, environment, readOnly] of [
  ["the embedded database", embedded, embeddedReadOnly],
  ["PostgreSQL", onPostgres(), postgresReadOnly],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(`readiness on ${name}`, (it) => {
    // Seen failing when readiness did not tell a writable database from a read-only one.
    it.effect("reports whether the database can be written, and is ready when it can only be read", function* () {
      const { send } = yield* TestServer
      expect((yield* soon(readyz)).json).toEqual({ ok: true, writable: true })
      const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p" } })
      const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId } })

      yield* readOnly
      expect((yield* soon(readyz)).json).toEqual({ ok: true, writable: false })
      yield* soon(send("POST", "/api/v0/keys/validate", { json: { key } }))
      const written = yield* send("POST", "/api/v0/projects", { json: { name: "q" } })
      expect(written.status, written.text).toBe(503)
    })
  })
}
