import { assert } from "@effect/vitest"
import { Effect, Random, Schedule } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { connect, createServer, type AddressInfo } from "node:net"
import type { Pool } from "pg"
import { main } from "../support/cli.ts"
import { adminClient } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { installOutbox } from "../support/outbox.ts"
import { encryptionKey } from "../support/server.ts"
import { until } from "../support/wait.ts"
import { crash, restartablePostgres } from "./postgres.ts"
import { makeRestartable, makeTenant } from "./support.ts"

/**
 * Promise (Outbox): Each row of an outbox arrives once, across kill -9 of relays and of Gatehouse and crashes of both
 * databases.
 */

const orders = 5_000
/** Each transaction has an order, an event and a job; that many at a time. */
const writers = 4

/** One address for a service that listens elsewhere after each start. */
const addressOf = (url: () => string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const server = createServer((client) => {
          const { hostname, port } = new URL(url())
          const service = connect(Number(port), hostname)
          for (const [from, to] of [
            [client, service],
            [service, client],
          ] as const) {
            from.on("error", () => to.destroy())
            from.pipe(to)
          }
        })
        await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
        return server
      }),
      (server) => Effect.sync(() => void server.close()),
    ),
    (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  )

/** A relay in a process of its own, which can be killed and started again. */
const makeRelay = (env: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const start = () =>
        spawn(process.execPath, [main, "outbox", "run"], {
          env: { PATH: process.env["PATH"], ...env },
          stdio: "ignore",
        })
      let child = start()
      const kill = async () => {
        const exited = once(child, "exit")
        if (child.exitCode === null && child.signalCode === null) {
          child.kill("SIGKILL")
          await exited
        }
      }
      return { kill, restart: () => kill().then(() => void (child = start())) }
    }),
    ({ kill }) => Effect.promise(kill),
  )

/** Commits an order with its event and its job, however often the database fails in between. */
const place = (pool: Pool, n: number) =>
  Effect.tryPromise(() =>
    pool.query(
      `WITH placed AS (INSERT INTO orders VALUES ($1) ON CONFLICT DO NOTHING RETURNING n)
       SELECT gatehouse_outbox.publish('order.created', to_jsonb(n)), gatehouse_outbox.create_job('w', to_jsonb(n))
       FROM placed`,
      [n],
    ),
  ).pipe(Effect.retry(Schedule.spaced("100 millis")), Effect.orDie)

// Seen failing without the idempotency keys (some twice), and with the rows deleted before the request (some lost).
it.live("10,000 rows arrive once each, while relays, Gatehouse and both databases are killed", function* () {
  const [platform, business] = yield* Effect.all([restartablePostgres, restartablePostgres], { concurrency: 2 })
  const service = yield* makeRestartable({ DATABASE_URL: platform.url, ENCRYPTION_KEY: encryptionKey })
  const { key } = yield* makeTenant(service.current)
  const pool = yield* installOutbox(business.url)
  yield* Effect.promise(() => pool.query("CREATE TABLE orders (n int PRIMARY KEY)"))
  const baseUrl = yield* addressOf(() => service.current().url)
  const env = { GATEHOUSE_URL: baseUrl, GATEHOUSE_TOKEN: key, GATEHOUSE_OUTBOX_DATABASE_URL: business.url }
  const relays = [yield* makeRelay(env), yield* makeRelay(env)] as const
  const faults = [
    Effect.promise(relays[0].restart),
    Effect.promise(relays[1].restart),
    Effect.suspend(() => Effect.andThen(service.current().end("SIGKILL"), service.restart)),
    crash(platform.url),
    crash(business.url, "gatehouse outbox"),
  ]
  let placed = 0
  const writing = Effect.forEach(
    Array.from({ length: orders }, (_, n) => n),
    (n) =>
      Effect.andThen(
        place(pool, n),
        Effect.sync(() => void placed++),
      ),
    { concurrency: writers, discard: true },
  )
  // Each fault twice, spread over the writing.
  const breaking = Effect.gen(function* () {
    const order = yield* Random.shuffle([...faults.keys(), ...faults.keys()])
    for (const [n, fault] of order.entries()) {
      yield* until(
        "the writers",
        Effect.sync(() => placed),
        (count) => count >= ((n + 1) * orders) / 11,
      )
      yield* faults[fault]!
    }
  })
  yield* Effect.all([writing, breaking], { concurrency: 2, discard: true })
  const waiting = Effect.tryPromise(() => pool.query("SELECT error FROM gatehouse_outbox.messages LIMIT 5"))
  yield* until(
    "the rows to be sent",
    Effect.map(waiting, ({ rows }) => rows),
    (rows) => rows.length === 0,
  )
  const sql = yield* adminClient(platform.url)
  const numbers = Array.from({ length: orders }, (_, n) => n)
  const events = yield* sql<{ n: number }>`SELECT (body::json ->> 'data')::int AS n FROM events ORDER BY n`
  assert.deepStrictEqual(
    events.map(({ n }) => n),
    numbers,
  )
  const jobs = yield* sql<{ n: number }>`SELECT input::text::int AS n FROM jobs ORDER BY n`
  assert.deepStrictEqual(
    jobs.map(({ n }) => n),
    numbers,
  )
})
