import { assert, describe } from "@effect/vitest"
import { Effect, Fiber, Ref } from "effect"
import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { get } from "node:http"
import { it } from "../support/it.ts"
import { adminToken } from "../support/server.ts"
import { freshPostgres } from "../support/databases.ts"
import { startService } from "../support/process.ts"
import { caddy, freePort, isInstalled, nginx, running, traefik } from "../support/webProxies.ts"
import { onPostgres } from "./support.ts"

/**
 * Promise (Start, stop, upgrade): Two replicas behind nginx, Caddy or Traefik with its example restart one after the
 * other, and no request fails.
 */

const example = (name: string) => readFileSync(new URL(`../../deploy/proxies/${name}`, import.meta.url), "utf8")

/** What Caddy up to 2.11.1 needs to send a body to another replica: the example wants a newer one. */
const bufferOfCaddy = () =>
  /^v?2\.[0-6]\./.test(execFileSync("caddy", ["version"]).toString()) ? "buffer_requests" : "request_buffers 8MiB"

/** The example of a proxy at a port, without TLS, in front of two ports. */
const proxies = [
  {
    proxy: nginx,
    at: (port: number) =>
      example("nginx.conf")
        .replace("listen 443 ssl;", `listen 127.0.0.1:${port};`)
        .replaceAll(/^ *ssl_.*\n/gm, ""),
  },
  {
    proxy: caddy,
    at: (port: number) =>
      example("Caddyfile")
        .replace("gatehouse.example.com {", `http://127.0.0.1:${port} {`)
        .replace("flush_interval", `${bufferOfCaddy()}\n\t\tflush_interval`),
  },
  {
    proxy: traefik,
    at: () =>
      example("traefik.yaml")
        .replace("Host(`gatehouse.example.com`)", "PathPrefix(`/`)")
        .replace(/^ *tls: .*\n/m, ""),
  },
]

describe("two replicas behind a proxy with its example", () => {
  for (const { at, proxy } of proxies) {
    // Seen failing behind Caddy when it did not send a body again.
    it.live.skipIf(!isInstalled(proxy))(
      `${proxy.name}: a rolling restart fails no request, and changes stream`,
      function* () {
        const [own, first, second] = [
          yield* Effect.promise(freePort),
          yield* Effect.promise(freePort),
          yield* Effect.promise(freePort),
        ]
        const settings = { ADMIN_TOKEN: adminToken, TRUST_PROXY: "1", BASE_URL: `http://127.0.0.1:${own}` }
        const environment = { ...onPostgres(yield* freshPostgres()).environment, ...settings }
        const start = (port: number) => startService({ ...environment, PORT: String(port) })
        const before = [yield* start(first), yield* start(second)]
        const text = at(own)
          .replace("127.0.0.1:3000", `127.0.0.1:${first}`)
          .replace("127.0.0.1:3001", `127.0.0.1:${second}`)
        const send = yield* running(proxy, own, text)

        // The stream of changes says at once that it is open.
        const opened = yield* Effect.callback<string>((resume) => {
          const headers = { authorization: `Bearer ${adminToken}` }
          const request = get(`http://127.0.0.1:${own}/api/v0/live`, { headers }, (response) => {
            response.once("data", (piece) => resume(Effect.succeed(String(piece))))
          })
          request.on("error", () => {})
          return Effect.sync(() => request.destroy())
        })
        assert.match(opened, /^(?:event|id|data|retry|:)/)

        // Ten requests a second, each of which writes.
        const answers: Array<number> = []
        const isDone = yield* Ref.make(false)
        const load = yield* Effect.forkScoped(
          Effect.repeat(
            Effect.andThen(
              Effect.sleep("100 millis"),
              Effect.map(send("POST", "/api/v0/orgs", { as: adminToken, json: { name: "o" } }), ({ status }) =>
                answers.push(status),
              ),
            ),
            { until: () => Ref.get(isDone) },
          ),
        )
        for (const [n, port] of [first, second].entries()) {
          const ended = yield* before[n]!.end("SIGTERM")
          assert.strictEqual(ended.how, 0)
          const next = yield* start(port)
          assert.strictEqual((yield* next.send("GET", "/readyz")).status, 200)
        }
        yield* Ref.set(isDone, true)
        yield* Fiber.join(load)
        assert.deepStrictEqual(
          answers.filter((status) => status !== 200),
          [],
        )
        assert.isAbove(answers.length, 10)
      },
    )
  }
})
