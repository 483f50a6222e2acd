import { expect } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { connect } from "node:net"
import { layer } from "../../support/it.ts"
import { guarded, TestServer } from "../../support/server.ts"
import { makeTenant } from "../tenants.ts"
import { served } from "./probe.ts"

/**
 * Promise (Bounded memory): Endless bodies, from a stranger or with a key, hold at most 64 MiB together and delay
 * nobody. Too large a length is a 413 before the first byte. Only `keys/validate` reads a body without a credential.
 * Above 64 MiB a body is a 503.
 */

/**
 * Promise (Bounded work): A megabyte of `{},`, a cron expression that never runs, or `/docs` a thousand times on one
 * connection does not block the event loop.
 */

const MiB = 1024 * 1024

/** A connection on which these bytes were sent, with everything that came back so far. */
const sending = Effect.fnUntraced(function* (bytes: string) {
  const { url } = yield* TestServer
  const { hostname, port } = new URL(url)
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() => connect(Number(port), hostname)),
    (socket) => Effect.sync(() => socket.destroy()),
  )
  const state = { got: "", isEnded: false }
  socket.on("data", (chunk) => (state.got += chunk.toString("latin1")))
  socket.on("error", () => {})
  socket.on("close", () => (state.isEnded = true))
  yield* Effect.callback<void>((resume) => void socket.write(bytes, () => resume(Effect.void)))
  return { socket, state }
})

const until = (holds: () => boolean) =>
  Effect.sync(holds).pipe(Effect.repeat({ until: (it) => it, schedule: Schedule.spaced("5 millis") }))

/** The head of a POST without its body. */
const head = (path: string, ...lines: ReadonlyArray<string>) =>
  [`POST ${path} HTTP/1.1`, "host: 127.0.0.1", "content-type: application/json", ...lines, "", ""].join("\r\n")

const statusOf = ({ state }: { readonly state: { readonly got: string } }) =>
  Number(/^HTTP\/1\.1 (\d+)/.exec(state.got)?.[1])

/** The CPU time of this process, including the server, during an effect, in milliseconds. */
const cpuOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = process.cpuUsage()
    yield* effect
    return process.cpuUsage(before).user / 1000
  })

layer(TestServer.layer(guarded), { excludeTestServices: true })("limits for a client without a credential", (it) => {
  // Seen failing without a limit of its own: each of these kept its part of a body for a minute.
  it.effect("a declared body above the limit is a 413 before a byte is read, and the connection ends", function* () {
    const cases: ReadonlyArray<readonly [path: string, length: number]> = [
      ["/api/v0/keys/validate", 1_000_000],
      ["/api/v0/keys/validate", 4_097],
      ["/api/v0/register-deployment", 1_025],
      ["/api/svc/chat", 8 * MiB + 1],
      ["/v1/jobs/create", MiB + 1],
    ]
    for (const [path, length] of cases) {
      const crowd = yield* Effect.forEach(Array.from({ length: 20 }), () =>
        sending(head(path, `content-length: ${length}`)),
      )
      for (const one of crowd) {
        yield* until(() => one.state.isEnded)
        expect(statusOf(one), path).toBe(413)
      }
    }
  })

  it.effect("a body without a length ends at the limit, even while more of it arrives", function* () {
    const piece = `${(5_000).toString(16)}\r\n${" ".repeat(5_000)}\r\n`
    const one = yield* sending(head("/api/v0/keys/validate", "transfer-encoding: chunked") + piece)
    yield* until(() => one.state.got !== "")
    expect(statusOf(one)).toBe(413)
  })

  // Seen failing when register-deployment read the body first.
  it.effect(
    "a request without a credential gets a 401 with the way to send one, before its body is read",
    function* () {
      let asked = 0
      for (const { method, path, body } of (yield* served).values()) {
        // These operations have their credential in the body, or need none.
        if (body === undefined || /\/(keys\/validate|keys\/token|sessions\/portal|docs\/mcp)$/.test(path)) continue
        const target = path.replace(/\{\w+\}/g, "x")
        const one = yield* sending(head(target, "content-length: 1000").replace("POST", method))
        yield* until(() => one.state.got !== "")
        expect(statusOf(one), path).toBe(401)
        expect(one.state.got.toLowerCase(), path).toContain("\r\nwww-authenticate: bearer\r\n")
        asked++
      }
      expect(asked).toBeGreaterThan(20)
    },
  )

  // Seen failing when each request encoded the page and its script from a string: 24 ms of CPU.
  it.effect("the docs cost almost nothing, for any number of requests on one connection", function* () {
    const { send } = yield* TestServer
    yield* send("GET", "/docs")
    const requests = (count: number) => "GET /docs HTTP/1.1\r\nhost: a\r\naccept-encoding: br\r\n\r\n".repeat(count)
    const took = yield* cpuOf(
      Effect.gen(function* () {
        const one = yield* sending(requests(100))
        yield* until(() => one.state.got.split("HTTP/1.1 200").length === 101)
      }),
    )
    expect(took).toBeLessThan(1_000)
    const many = yield* sending(requests(1_000))
    yield* until(() => many.state.isEnded)
    expect((yield* send("GET", "/healthz")).status).toBe(200)
  })
})

layer(TestServer.layer(), { excludeTestServices: true })("limits for a project key", (it) => {
  // Seen failing without the budget: all of it was kept for a minute.
  it.effect(
    "unfinished bodies above 64 MiB together are a 503, others' requests are not, and ended requests free their bytes",
    function* () {
      const tenant = yield* makeTenant()
      const whole = JSON.stringify({ workflow: "w", input: "x".repeat(MiB - 100) })
      const start = head("/v1/jobs/create", `x-api-key: ${tenant.key}`, `content-length: ${whole.length}`)
      yield* Effect.gen(function* () {
        const crowd = yield* Effect.forEach(Array.from({ length: 70 }), () => sending(start + whole.slice(0, -10)), {
          concurrency: 10,
        })
        const refused = () => crowd.filter(({ state }) => state.got !== "")
        yield* until(() => refused().length >= 6)
        for (const one of refused()) {
          expect(statusOf(one)).toBe(503)
          expect(one.state.got).toMatch(/\r\nretry-after: 1\r\n[^]*"code":"unavailable"/i)
        }
        expect((yield* tenant.ask("jobs/create", { workflow: "w" })).status).toBe(200)
        // Those that were not refused are answered to the end.
        const kept = crowd.find(({ state }) => state.got === "")!
        kept.socket.write(whole.slice(-10))
        yield* until(() => kept.state.got !== "")
        expect(statusOf(kept)).toBe(200)
      }).pipe(Effect.scoped)
      // The server notices the ends of the other connections a little later.
      yield* Effect.gen(function* () {
        const again = yield* sending(start + whole.slice(0, -10))
        again.socket.write(whole.slice(-10))
        yield* until(() => again.state.got !== "")
        return statusOf(again)
      }).pipe(
        Effect.scoped,
        Effect.repeat({ until: (status) => status === 200, schedule: Schedule.spaced("20 millis") }),
      )
    },
  )

  // Seen failing when each blocked the event loop for 0.34 s.
  it.effect("a body of too many JSON values is a 400 with the reason, and is not parsed", function* () {
    const tenant = yield* makeTenant()
    const values = (size: number) => `{"workflow":"w","input":[${"{},".repeat(size / 3 - 20)}{}]}`
    const members = Array.from({ length: 25_000 }, (_, n) => `"m${n}":1`).join()
    const headers = { "content-type": "application/json", "x-api-key": tenant.key }
    const { send } = yield* TestServer
    const took = yield* cpuOf(
      Effect.gen(function* () {
        for (const [path, body] of [
          ["/v1/jobs/create", values(MiB)],
          ["/v1/jobs/create", `{"workflow":"w","input":{${members}}}`],
          ["/v1/schedules/create", values(MiB)],
          ["/api/v0/projects", values(MiB)],
          ["/api/svc/chat", values(8 * MiB)],
        ] as const) {
          const anonymous = path.startsWith("/v1") ? headers : { "content-type": "application/json" }
          const answer = yield* send("POST", path, { body, headers: anonymous })
          expect(answer.status, path).toBe(400)
          expect(answer.text, path).toMatch(
            /"The request body has more than [\d,]+ (JSON values|members of objects)\. Send fewer\."/,
          )
        }
      }),
    )
    expect(took).toBeLessThan(1_000)
  })

  // Seen failing with up to a second for each, to answer 400.
  it.effect("a schedule with a date that never comes is refused without a search", function* () {
    const tenant = yield* makeTenant()
    const took = yield* cpuOf(
      Effect.forEach(Array.from({ length: 30 }), () =>
        Effect.map(
          tenant.ask("schedules/create", { workflow: "w", cron: "0 0 30 2 *", timezone: "Australia/Lord_Howe" }),
          ({ status, text }) =>
            expect([status, text.includes("cron names dates that never come")]).toEqual([400, true]),
        ),
      ),
    )
    expect(took).toBeLessThan(2_000)
  })
})
