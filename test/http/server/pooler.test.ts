import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { connect, createServer, type AddressInfo, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { planSettings } from "#src/infrastructure/database/planSettings.ts"
import { runCli } from "../../support/cli.ts"
import { adminClient, freshPostgres } from "../../support/databases.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver } from "../../support/receiver.ts"
import { encryptionKey, type Environment, TestServer } from "../../support/server.ts"
import { eventually } from "../../support/wait.ts"
import { makeTenant } from "../tenants.ts"

/**
 * Promise (Connections to PostgreSQL): PgBouncer 1.21 or later in transaction mode carries everything but `LISTEN`. A
 * pooler that keeps no prepared statements or drops the planner settings is named at the start, by `/readyz` and by
 * `doctor`.
 */

/** The whole messages at the beginning of the bytes, each with a type and its length, and the rest. */
const messagesOf = (bytes: Buffer) => {
  const messages: Array<Buffer> = []
  let rest = bytes
  while (rest.length >= 5 && rest.length > rest.readUInt32BE(1)) {
    const end = rest.readUInt32BE(1) + 1
    messages.push(rest.subarray(0, end))
    rest = rest.subarray(end)
  }
  return { messages, rest }
}

/** A session of the server, which serves one client at a time. */
interface Session {
  readonly socket: Socket
  /** Answers that the client waits for. */
  owed: number
  client: Socket | undefined
}

/**
 * A pooler in transaction mode in front of the server in the URL, as PgBouncer before 1.21 is one: after each
 * transaction, the session goes to the client that wants one next. Every client brings a session, with its own
 * sign-in. Returns its URL.
 *
 * @param refuses a startup parameter that it does not know
 */
const transactionPooler = Effect.fn("transactionPooler")(function* (url: string, refuses?: string) {
  const { hostname, port } = new URL(url)
  const idle: Array<Session> = []
  const waiting: Array<() => void> = []
  const sockets = new Set<Socket>()

  const release = (session: Session) => {
    session.client = undefined
    idle.push(session)
    waiting.shift()?.()
  }
  /** Opens a session for a client that signs in, and gives it to the others afterwards. */
  const signIn = (client: Socket, startup: Buffer, signedIn: () => void) => {
    const session: Session = { socket: connect(Number(port), hostname), owed: 1, client }
    sockets.add(session.socket)
    let bytes: Buffer = Buffer.alloc(0)
    session.socket.write(startup)
    session.socket.on("error", () => {})
    session.socket.on("close", () => session.client?.destroy())
    session.socket.on("data", (chunk) => {
      const { messages, rest } = messagesOf(Buffer.concat([bytes, chunk]))
      bytes = rest
      for (const message of messages) {
        // A notification for nobody is lost.
        session.client?.write(message)
        const isReady = message[0] === "Z".charCodeAt(0)
        if (isReady) session.owed--
        if (isReady && session.owed === 0 && message[5] === "I".charCodeAt(0)) {
          release(session)
          signedIn()
        }
      }
    })
    return session
  }

  const serve = (client: Socket) => {
    let bytes: Buffer = Buffer.alloc(0)
    let signingIn: Session | undefined
    let isSignedIn = false
    let session: Session | undefined
    const forward = () => {
      const { messages, rest } = messagesOf(bytes)
      if (messages.length === 0) return
      if (session?.client !== client) {
        session = idle.pop()
        if (session === undefined) return void waiting.push(forward)
        session.client = client
      }
      bytes = rest
      for (const message of messages) {
        const type = String.fromCharCode(message[0]!)
        if (type === "X") return release(session)
        if (type === "S" || type === "Q") session.owed++
        session.socket.write(message)
      }
    }
    client.on("data", (chunk) => {
      if (isSignedIn) {
        bytes = Buffer.concat([bytes, chunk])
        return forward()
      }
      if (signingIn !== undefined) return signingIn.socket.write(chunk)
      // A request for TLS, which it has not.
      if (chunk.readUInt32BE(0) === 8) return client.write("N")
      if (refuses !== undefined && chunk.includes(refuses)) {
        const fields = `SFATAL\0C08P01\0Munsupported startup parameter: ${refuses}\0\0`
        const error = Buffer.from(`E\0\0\0\0${fields}`)
        error.writeUInt32BE(error.length - 1, 1)
        return client.end(error)
      }
      signingIn = signIn(client, chunk, () => {
        isSignedIn = true
      })
    })
    client.on("error", () => {})
    client.on("close", () => {
      // It left in the middle of a transaction.
      if (session?.client === client) session.socket.destroy()
    })
  }

  const server = createServer((client) => {
    sockets.add(client)
    serve(client)
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))),
    () =>
      Effect.sync(() => {
        server.close(() => {})
        for (const socket of sockets) socket.destroy()
      }),
  )
  const through = new URL(url)
  through.port = String((server.address() as AddressInfo).port)
  return through.href
})

/** A service on a migrated database, reached by these variables. */
const started = Effect.fnUntraced(function* (environment: Environment) {
  const context = yield* Layer.build(TestServer.layer({ ENCRYPTION_KEY: encryptionKey, ...environment }))
  return Context.get(context, TestServer)
})

/** The answer of /readyz once it has this status. */
const readyz = (server: TestServer["Service"], expected: (json: unknown) => boolean) =>
  eventually(
    "readiness",
    Effect.filterOrFail(
      server.send("GET", "/readyz"),
      ({ json }) => expected(json),
      ({ text }) => text,
    ),
  )

const says = (text: string) => (json: unknown) => JSON.stringify(json).includes(text)

it.live("a pooler in transaction mode is named at the start, by /readyz and by doctor", function* () {
  const url = yield* freshPostgres()
  const DATABASE_URL = yield* transactionPooler(url)
  const server = yield* started({ DATABASE_URL, LISTEN_URL: url })
  const { status } = yield* readyz(server, says("pooler in transaction mode"))
  expect(status).toBe(503)
  expect(server.logs()).toContain("pooler in transaction mode")
  const { out } = yield* runCli(["doctor", "--json"], { env: { DATABASE_URL, ENCRYPTION_KEY: encryptionKey } })
  const { checks } = JSON.parse(out) as { checks: ReadonlyArray<{ name: string; message: string }> }
  expect(checks.find(({ name }) => name === "database")?.message).toContain("pooler in transaction mode")
})

it.live("a pooler that refuses startup parameters is named, too", function* () {
  const DATABASE_URL = yield* transactionPooler(yield* freshPostgres(), "plan_cache_mode")
  const server = yield* started({ DATABASE_URL })
  const { status } = yield* readyz(server, says("refuses startup parameters"))
  expect(status).toBe(503)
})

it.live("a LISTEN_URL through such a pooler is a warning: requests are served", function* () {
  const DATABASE_URL = yield* freshPostgres()
  const server = yield* started({ DATABASE_URL, LISTEN_URL: yield* transactionPooler(DATABASE_URL) })
  const { json, status } = yield* readyz(server, says("warning"))
  expect(status).toBe(200)
  expect(json).toMatchObject({ ok: true, writable: true, warning: expect.stringContaining("LISTEN_URL") })
  expect(server.logs()).toContain("Notifications do not arrive")
})

/** PgBouncer 1.21 or later, from the PATH or PGBOUNCER. */
const program = process.env["PGBOUNCER"] ?? "pgbouncer"
const version = (() => {
  try {
    return Number(/PgBouncer 1\.(\d+)/.exec(execFileSync(program, ["--version"], { encoding: "utf8" }))?.[1])
  } catch {
    return undefined
  }
})()
const isMissing = version === undefined || version < 21
if (isMissing) process.stdout.write("the tests with PgBouncer are skipped: PGBOUNCER names no version 1.21 or later\n")

/**
 * Starts PgBouncer in transaction mode, with three sessions for all connections of a service. Returns the URL of the
 * database through it.
 */
const pgbouncer = Effect.fn("pgbouncer")(function* (url: string) {
  const { hostname, password, pathname, port, username } = new URL(url)
  const listen = yield* closedPort
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-pgbouncer-"))
  chmodSync(folder, 0o755)
  const file = join(folder, "pgbouncer.ini")
  writeFileSync(
    file,
    `[databases]
* = host=${hostname} port=${port} user=${username} ${password === "" ? "" : `password=${password}`}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_prepared_statements = 200
default_pool_size = 3
ignore_startup_parameters = idle_in_transaction_session_timeout,${Object.keys(planSettings).join(",")}
`,
  )
  // It refuses to run as root.
  const asNobody = process.getuid?.() === 0 ? ["--user=nobody"] : []
  yield* Effect.acquireRelease(
    Effect.sync(() => spawn(program, [...asNobody, file], { stdio: "ignore" })),
    (child) =>
      Effect.sync(() => {
        child.kill()
        rmSync(folder, { recursive: true, force: true })
      }),
  )
  const through = `postgres://${username}@127.0.0.1:${listen}${pathname}`
  yield* eventually("PgBouncer", Effect.scoped(Effect.flatMap(adminClient(through), (sql) => sql`SELECT 1`)))
  return through
})

it.live.skipIf(isMissing)(
  "PgBouncer that drops the settings of sessions is named, until the database has them",
  function* () {
    const url = yield* freshPostgres()
    const server = yield* started({ DATABASE_URL: yield* pgbouncer(url), LISTEN_URL: url })
    const { status } = yield* readyz(server, says("planner settings"))
    expect(status).toBe(503)
  },
)

it.live.skipIf(isMissing)("jobs and events are handled through PgBouncer in transaction mode", function* () {
  const url = yield* freshPostgres()
  yield* Effect.scoped(
    Effect.flatMap(adminClient(url), (sql) =>
      Effect.forEach(Object.entries(planSettings), ([name, value]) =>
        sql.unsafe(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET ${name} = ${value}`),
      ),
    ),
  )
  const DATABASE_URL = yield* pgbouncer(url)
  const server = yield* started({ DATABASE_URL, LISTEN_URL: url })
  expect((yield* readyz(server, says('"ok":true'))).json).toEqual({ ok: true, writable: true })
  const tenant = yield* Effect.provideService(makeTenant(), TestServer, server)
  const receiver = yield* makeReceiver()
  yield* tenant.endpoint(receiver.url)
  const count = 60
  yield* Effect.forEach(
    Array.from({ length: count }),
    () => Effect.all([tenant.finished(), tenant.call("events/publish", { type: "a.b", data: 1 })]),
    { concurrency: 20 },
  )
  yield* receiver.arrived(2 * count)
  expect(server.logs()).not.toContain("prepared statement")
  const { out } = yield* runCli(["doctor", "--json"], {
    env: { DATABASE_URL, LISTEN_URL: url, ENCRYPTION_KEY: encryptionKey },
  })
  const { checks } = JSON.parse(out) as { checks: ReadonlyArray<{ name: string; state: string }> }
  expect(checks.filter(({ name }) => name === "database" || name === "notifications")).toEqual([
    expect.objectContaining({ state: "ok" }),
    expect.objectContaining({ state: "ok" }),
  ])
})

it.live("PostgreSQL itself is no pooler", function* () {
  const DATABASE_URL = yield* freshPostgres()
  const server = yield* started({ DATABASE_URL })
  const { json } = yield* readyz(server, says("true"))
  expect(json).toEqual({ ok: true, writable: true })
})
