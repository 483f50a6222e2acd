import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { connect } from "node:net"
import { manyPages } from "../../support/docs.ts"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import type { WireAnswer } from "../../support/wire.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"

/**
 * Promise (Overload): Chats with 7.9 MB of pages each are answered or are a 503. Meanwhile `/healthz` and another
 * org's jobs are answered, and a body that never arrives delays only chats of its own org.
 */

const MiB = 1024 * 1024
const path = "/api/svc/chat"
const messages = [{ role: "user", content: "what is subject7?" }]

/** Pages of 7.9 MB that no other chat has. */
const largePages = (n: number) => {
  const pages = Object.fromEntries(manyPages(1_900).map(({ slug, markdown }) => [slug, markdown]))
  return { ...pages, [`page ${n}`]: `Page ${n}.` }
}

/** The headers of a project's key, in an org of its own. */
const makeProject = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "chats" } })
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "chats", orgId } })
  const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId } })
  return { "x-api-key": String(key) }
})

const expectRetryAfter = ({ headers, json, status }: WireAnswer) => {
  expect({ status, json }).toMatchObject({ status: 503, json: { code: "unavailable" } })
  expect(headers["retry-after"]).toMatch(/^\d+$/)
}

/** A chat whose body is declared and never sent, until the scope closes. */
const silentChat = Effect.fnUntraced(function* (url: string, headers: Record<string, string>) {
  const { hostname, port } = new URL(url)
  const head = [
    `POST ${path} HTTP/1.1`,
    `host: ${hostname}`,
    `x-api-key: ${headers["x-api-key"]}`,
    "content-type: application/json",
    `content-length: ${8 * MiB}`,
  ]
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() => connect(Number(port), hostname).on("error", () => {})),
    (socket) => Effect.sync(() => socket.destroy()),
  )
  // The connection stays open.
  socket.write(`${head.join("\r\n")}\r\n\r\n{`)
})

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("chats with much documentation", (it) => {
  // Seen failing when all of twelve were read and indexed at once, in 1,984 MiB.
  it.effect(
    "6 with 7.9 MB of pages each are answered or refused with 503, and other requests are answered meanwhile",
    function* () {
      const { send } = yield* TestServer
      const [own, other] = [yield* makeProject, yield* makeProject]
      const chats = yield* Effect.forkChild(
        Effect.forEach(
          Array.from({ length: 6 }, (_, n) => n),
          (n) => send("POST", path, { json: { messages, docsPages: largePages(n) }, headers: own }),
          { concurrency: "unbounded" },
        ),
      )
      let healthy = 0
      while (chats.pollUnsafe() === undefined) {
        expect((yield* send("GET", "/healthz")).status).toBe(200)
        expect((yield* send("POST", "/v1/jobs/create", { json: { workflow: "w" }, headers: other })).status).toBe(200)
        healthy++
        yield* Effect.sleep("20 millis")
      }
      const answers = yield* Fiber.join(chats)
      const [answered, refused] = [200, 503].map((code) => answers.filter(({ status }) => status === code))
      expect(answered!.length + refused!.length).toBe(6)
      expect(answered!.length).toBeGreaterThan(0)
      for (const { text } of answered!) expect(text).toContain("subject7.")
      refused!.forEach(expectRetryAfter)
      expect(healthy).toBeGreaterThan(10)
    },
  )

  it.effect("a body that never arrives delays only the chats of its own org", function* () {
    const { routed, send, url } = yield* TestServer
    const [own, other] = [yield* makeProject, yield* makeProject]
    const before = routed()
    yield* silentChat(url, own)
    while (routed() === before) yield* Effect.sleep("5 millis")
    const json = { messages, docsPages: { page: "# Page\n\nThe answer about subject7." } }
    // Until the silent one has its turn, others of its org may be answered.
    const refused = until("a chat to wait", send("POST", path, { json, headers: own }), ({ status }) => status !== 200)
    const waiting = yield* Effect.forkChild(refused)
    const answer = yield* send("POST", path, { json, headers: other })
    expect(answer.text).toContain("subject7")
    expectRetryAfter(yield* Fiber.join(waiting))
  })
})
