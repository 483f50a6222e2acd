import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync, readdirSync, readFileSync, renameSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { inject } from "vitest"
import { run, spawnCli } from "../support/cli.ts"
import { adminClient, freshFolder, freshPostgres, inDatabase } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { encryptionKey } from "../support/server.ts"
import { makeTenant, makeVerifier } from "./support.ts"

/**
 * Promise (Backup and rotation of keys): A restored backup is the service at the time of the backup: its keys, its
 * deliveries, and its pending deliveries are sent.
 */

type Environment = Readonly<Record<string, string>>

const onPostgres = (url: string): Environment => ({ DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey })

const quick = { WEBHOOK_RETRY_DELAYS: "1s,1s,1s,1s,1s,1s,1s,1s,1s,1s" }

/**
 * Backs up a service with one finished delivery and several pending ones, and stops it. Starts another service on the
 * restored data, which must continue where the first one was at the backup. `backUp` runs while the service runs, and
 * returns an effect that restores the data once the service has stopped.
 */
const check = Effect.fnUntraced(function* <R>(
  original: Environment,
  backUp: Effect.Effect<Effect.Effect<Environment, never, R>, never, R>,
) {
  const verifier = yield* makeVerifier()
  let service = yield* startService({ ...quick, ...original })
  const tenant = yield* makeTenant(() => service)
  yield* tenant.endpoint(`${verifier.url}/a`)
  const first = yield* tenant.finish(0)
  yield* tenant.settled
  verifier.behaviour.answer = () => 503
  const jobs = yield* Effect.forEach([1, 2, 3, 4, 5], tenant.finish)
  yield* verifier.arrived(2)
  const restore = yield* backUp
  yield* service.end("SIGTERM")

  const restored = yield* restore
  verifier.behaviour.answer = () => 200
  const before = verifier.receipts.map(({ id }) => id)
  service = yield* startService({ ...quick, ...restored })
  // The restored service accepts the old key and signs with the old secret: the verifier accepts no other.
  yield* tenant.settled
  const list = yield* tenant.call("webhooks/deliveries/list", {})
  assert.deepStrictEqual(
    list.deliveries.map(({ state }) => state),
    Array(6).fill("delivered"),
  )
  const after = verifier.receipts.slice(before.length)
  assert.deepStrictEqual(after.map(({ jobId }) => jobId).sort(), jobs.toSorted())
  assert.notInclude(
    after.map(({ jobId }) => jobId),
    first,
  )
  // A delivery that was attempted before the backup keeps its id.
  assert.include(
    after.map(({ id }) => id),
    before[1],
  )
})

const majorOf = (text: string) => Number(/(\d+)/.exec(text)![1])

/** The folder with a `pg_dump` that is new enough for the server, or the reason why there is none. */
const findTools = async () => {
  const server = await Effect.runPromise(
    Effect.scoped(
      Effect.flatMap(adminClient(inject("postgresUrl")), (sql) => sql<{ server_version: string }>`SHOW server_version`),
    ),
  )
  const wanted = majorOf(server[0]!.server_version)
  const packaged = "/usr/lib/postgresql"
  const folders = [""]
  try {
    folders.push(...readdirSync(packaged).map((version) => join(packaged, version, "bin/")))
  } catch {
    // The system is not Debian.
  }
  const isNewEnough = (folder: string) => {
    try {
      return majorOf(execFileSync(`${folder}pg_dump`, ["--version"]).toString()) >= wanted
    } catch {
      return false
    }
  }
  const folder = folders.find(isNewEnough)
  return folder === undefined ? { missing: `no pg_dump of PostgreSQL ${wanted} or newer is here` } : { folder }
}
const { folder, missing } = await findTools()
const script = fileURLToPath(new URL("../../deploy/backup.sh", import.meta.url))

const tool = Effect.fnUntraced(function* (name: string, ...args: ReadonlyArray<string>) {
  const { code, err } = yield* run(`${folder}${name}`, args)
  assert.strictEqual(code, 0, err)
})

/**
 * An empty database of a role that is no superuser, as `createdb --owner` makes it: since PostgreSQL 15 only its owner
 * may create tables there. Returns its URL.
 */
const ownedPostgres = Effect.fnUntraced(function* (name: string) {
  const role = `gatehouse_${name}_${process.pid}`
  const run = (statement: string) =>
    Effect.scoped(Effect.flatMap(adminClient(inject("postgresUrl")), (admin) => admin.unsafe(statement)))
  yield* Effect.acquireRelease(run(`CREATE ROLE ${role} LOGIN PASSWORD 'password'`), () =>
    Effect.orDie(run(`DROP ROLE ${role}`)),
  )
  yield* Effect.acquireRelease(run(`CREATE DATABASE ${role} OWNER ${role}`), () =>
    Effect.orDie(run(`DROP DATABASE ${role} WITH (FORCE)`)),
  )
  const url = new URL(inDatabase(inject("postgresUrl"), role))
  url.username = role
  url.password = "password"
  return url.href
})

// The steps of docs/backup.md. Seen failing when the role did not own the restored database, with a new ENCRYPTION_KEY,
// and with a dump without pending_deliveries.
describe.concurrent("a backup, restored", () => {
  it.live("of the embedded database: the folder of the stopped service", function* () {
    const [from, to] = [yield* freshFolder(), yield* freshFolder("empty")]
    const restore = Effect.sync(() => {
      cpSync(from, to, { recursive: true })
      return { DATA_DIR: to }
    })
    yield* check({ DATA_DIR: from }, Effect.succeed(restore))
  })

  it.live("of the embedded database: moved to PostgreSQL by move-data", function* () {
    const [from, to] = [yield* freshFolder(), yield* ownedPostgres("moved")]
    const restore = Effect.gen(function* () {
      const key = readFileSync(join(from, "encryption.key"), "utf8").trim()
      const env = { DATA_DIR: from, DATABASE_URL: to, ENCRYPTION_KEY: key }
      const { code, err } = yield* spawnCli(["move-data"], { env })
      assert.strictEqual(code, 0, err)
      return env
    })
    yield* check({ DATA_DIR: from }, Effect.succeed(restore))
  })

  const ways = {
    pg_dump: (url: string, file: string) => tool("pg_dump", "--format=custom", "--file", file, url),
    "backup.sh of compose.yaml": Effect.fnUntraced(function* (url: string, file: string) {
      const { hostname, password, pathname, port, username } = new URL(url)
      const { code, err, out } = yield* run(script, ["once"], {
        env: {
          ...{ PATH: `${folder === "" ? "" : `${folder}:`}${process.env["PATH"]}`, BACKUP_DIR: dirname(file) },
          PGHOST: hostname,
          PGPORT: port,
          PGDATABASE: pathname.slice(1),
          PGUSER: username,
          PGPASSWORD: password,
        },
      })
      assert.strictEqual(code, 0, err)
      renameSync(join(dirname(file), out.trim()), file)
    }),
  }
  for (const [name, dumped] of Object.entries(ways)) {
    it.live.skipIf(missing !== undefined)(
      `of PostgreSQL: ${name} of the running service's database${missing === undefined ? "" : ` (skipped: ${missing})`}`,
      function* () {
        const [from, to, dumps] = [
          yield* ownedPostgres(`from_${name.slice(0, 6)}`),
          yield* ownedPostgres(`to_${name.slice(0, 6)}`),
          yield* freshFolder("empty"),
        ]
        const dump = join(dumps, "gatehouse.dump")
        const restore = Effect.as(
          tool("pg_restore", "--exit-on-error", "--no-owner", "--dbname", to, dump),
          onPostgres(to),
        )
        yield* check(onPostgres(from), Effect.as(dumped(from, dump), restore))
      },
    )
  }

  it.live("of PostgreSQL: a copy of the stopped service's database", function* () {
    const from = yield* freshPostgres()
    const admin = yield* adminClient(inject("postgresUrl"))
    const name = `${new URL(from).pathname.slice(1)}_copy`
    const restore = Effect.acquireRelease(
      admin`CREATE DATABASE ${admin(name)} TEMPLATE ${admin(new URL(from).pathname.slice(1))}`,
      () => Effect.orDie(admin`DROP DATABASE ${admin(name)} WITH (FORCE)`),
    ).pipe(Effect.as(onPostgres(inDatabase(from, name))), Effect.orDie)
    yield* check(onPostgres(from), Effect.succeed(restore))
  })
})
