import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { trusted } from "../../support/certificate.ts"
import { type ConnectProxy, makeConnectProxy, proxySecrets } from "../../support/connectProxy.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver } from "../../support/receiver.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { zip } from "../../support/zip.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

const retries = { WEBHOOK_RETRY_DELAYS: "1ms,1ms,1ms" }

/** Runs a test on a server whose proxy wants credentials. */
const behindProxy = <A, E>(
  environment: Readonly<Record<string, string>>,
  test: (proxy: ConnectProxy) => Effect.Effect<A, E, TestServer>,
) =>
  Effect.gen(function* () {
    const proxy = yield* makeConnectProxy({ authenticated: true })
    const EGRESS_PROXY = proxy.urlWithCredentials
    return yield* test(proxy).pipe(
      Effect.provide(TestServer.layer(onPostgres({ ...environment, ...retries, EGRESS_PROXY }))),
    )
  }).pipe(Effect.scoped)

describe("a service with EGRESS_PROXY", () => {
  it.live(
    "in guarded mode sends deliveries, callbacks, tests, documentation and skills through the proxy",
    function* () {
      const tls = yield* trusted({ names: ["hooks.test"] })
      const receiver = yield* makeReceiver({ tls })
      const host = yield* makeReceiver({ tls })
      const [hooks, docs] = [receiver, host].map(({ port }) => `https://hooks.test:${port}`)
      yield* behindProxy(guarded, (proxy) =>
        Effect.gen(function* () {
          const { send, logs, spans } = yield* TestServer
          const tenant = yield* makeTenant(adminToken)
          const id = yield* tenant.endpoint(`${hooks}/endpoint`)
          expect(yield* tenant.call("webhooks/test", { id })).toMatchObject({ delivered: true, status: 200 })
          const callback = { callback_url: `${hooks}/callback`, callback_secret: "secret" }
          for (const fields of [{}, callback]) {
            const { delivery_id } = yield* tenant.attempted(yield* tenant.finished(fields))
            expect(yield* tenant.delivery(delivery_id)).toMatchObject({ state: "delivered" })
          }
          expect(receiver.received.map(({ path }) => path)).toEqual(["/endpoint", "/endpoint", "/callback"])
          expect(proxy.connected.every((authority) => authority === `hooks.test:${receiver.port}`)).toBe(true)

          const { orgId } = tenant
          const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
            json: { name: "docs", orgId },
            as: adminToken,
          })
          const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as: adminToken })
          host.behave(({ path }) => ({
            status: 200,
            body:
              path === "/docs.zip"
                ? zip([{ path: "keys.md", content: "# Keys\n\nTo rotate a key, create a second one." }])
                : "---\nname: deploy\ndescription: how\n---\n",
          }))
          const answer = yield* send("POST", "/api/svc/chat", {
            json: {
              messages: [{ role: "user", content: "How do I rotate a key?" }],
              docsZipUrl: `${docs}/docs.zip`,
              skillUrls: [`${docs}/skill.md`],
            },
            as: key!,
          })
          expect(answer.text).toContain("To rotate a key")
          expect(host.received.map(({ path }) => path).sort()).toEqual(["/docs.zip", "/skill.md"])
          expect(proxy.connected.at(-1)).toBe(`hooks.test:${host.port}`)
          for (const secret of proxySecrets) expect(logs() + spans()).not.toContain(secret)
        }),
      )
    },
  )

  it.live("in open mode sends http through the proxy too", function* () {
    const receiver = yield* makeReceiver()
    yield* behindProxy({}, (proxy) =>
      Effect.gen(function* () {
        const tenant = yield* makeTenant()
        const id = yield* tenant.endpoint(`http://hooks.test:${receiver.port}/`)
        expect(yield* tenant.call("webhooks/test", { id })).toMatchObject({ delivered: true })
        expect(proxy.connected).toEqual([`hooks.test:${receiver.port}`])
      }),
    )
  })

  it.live("records a refusal of the proxy as an attempt, retries it, and answers 422 for a document", function* () {
    const receiver = yield* makeReceiver({ tls: yield* trusted({ names: ["hooks.test"] }) })
    const url = `https://hooks.test:${receiver.port}/`
    yield* behindProxy(guarded, (proxy) =>
      Effect.gen(function* () {
        const { send } = yield* TestServer
        const tenant = yield* makeTenant(adminToken)
        const id = yield* tenant.endpoint(url)
        proxy.behave(403)
        const error = "The egress proxy refused the connection with status 403."
        expect(yield* tenant.call("webhooks/test", { id })).toMatchObject({ delivered: false, status: null, error })
        const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
          json: { name: "docs", orgId: tenant.orgId },
          as: adminToken,
        })
        const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as: adminToken })
        const refused = yield* send("POST", "/api/svc/chat", {
          json: { messages: [{ role: "user", content: "How?" }], docsZipUrl: url },
          as: key!,
        })
        expect([refused.status, refused.text]).toEqual([422, expect.stringContaining(error.slice(0, -1))])

        proxy.behave(403, "connect")
        const { delivery_id } = yield* tenant.attempted(yield* tenant.finished(), 2)
        const { attempt_log, state } = yield* tenant.delivery(delivery_id)
        expect(state).toBe("delivered")
        expect(attempt_log[0]).toMatchObject({ status: null, failure: "connection", error })
        expect(receiver.received.length).toBe(1)
      }),
    )
  })

  it.live("records an attempt when the proxy is down, and refuses private literal addresses at creation", function* () {
    const EGRESS_PROXY = `http://127.0.0.1:${yield* closedPort}`
    yield* Effect.gen(function* () {
      const tenant = yield* makeTenant(adminToken)
      const literal = yield* tenant.ask("webhooks/create", { url: "https://10.0.0.1/", signing_secret: "s" })
      expect(literal.status).toBe(400)
      yield* tenant.endpoint("https://hooks.test/")
      const { delivery_id } = yield* tenant.attempted(yield* tenant.finished(), 4)
      const { attempt_log, state } = yield* tenant.delivery(delivery_id)
      expect(state).toBe("failed")
      expect(attempt_log.map(({ error }) => error)).toEqual(
        Array.from({ length: 4 }, () => "The connection to the egress proxy failed (ECONNREFUSED)."),
      )
    }).pipe(Effect.provide(TestServer.layer(onPostgres({ ...guarded, ...retries, EGRESS_PROXY }))))
  })
})
