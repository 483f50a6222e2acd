import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { Webhook } from "standardwebhooks"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { selfSigned } from "../../support/certificate.ts"
import { layer } from "../../support/it.ts"
import { type Behaviour, closedPort, makeReceiver } from "../../support/receiver.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { keysOf } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

type Fields = Readonly<Record<string, string>>
interface Said {
  readonly success: true
  readonly delivered: boolean
  readonly status: number | null
  readonly body: string | null
  readonly error: string | null
}
const test = Effect.fnUntraced(function* (tenant: Effect.Success<ReturnType<typeof makeTenant>>, id: string) {
  const answer = yield* tenant.ask("webhooks/test", { id })
  expect([answer.status, String(keysOf(answer.json))]).toEqual([
    200,
    "body,delivered,error,event,payload,status,success",
  ])
  return answer.json as Said
})

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("a test of an endpoint", (it) => {
  it.effect("is a signed job.completed with example ids, sent at once, and in no list", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    receiver.behave({ status: 202, body: "thanks" })
    const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    // An inactive endpoint can be tested too.
    const id = yield* tenant.endpoint(receiver.url, { signing_secret: secret, active: false })
    const said = { success: true, delivered: true, status: 202, body: "thanks", error: null }
    expect(yield* test(tenant, id)).toMatchObject(said)
    const [{ headers, body }] = receiver.received as [(typeof receiver.received)[0]]
    const { event, deliveryId } = yield* Effect.promise(() => verifyWebhook({ headers, body }, secret))
    new Webhook(secret).verify(body, headers as Record<string, string>)
    expect(Object.keys(event).join()).toBe("event,job_id,nonce,workflow,deployment_id,status,result,error,mapped_stack")
    expect(event).toMatchObject({ event: "job.completed", status: "completed", error: null })
    expect(headers["x-event-type"]).toBe("job.completed")
    const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
    for (const made of [event["job_id"], deliveryId]) expect(made).toMatch(ulid)
    expect((yield* tenant.ask("jobs/get", { job_id: event["job_id"] })).status).toBe(404)
    expect(yield* tenant.deliveries({})).toEqual([])
    // A new secret signs beside the old one here too.
    yield* tenant.call("webhooks/update", { id, signing_secret: "new" })
    yield* test(tenant, id)
    const [, second] = receiver.received
    for (const one of [secret, "new"]) yield* Effect.promise(() => verifyWebhook(second!, one))
  })

  it.effect("answers 200 with any answer of the endpoint, or with the reason for none", function* () {
    const tenant = yield* makeTenant()
    const receiver = yield* makeReceiver()
    const id = yield* tenant.endpoint(receiver.url)
    const none = { status: null, body: null }
    const cases: ReadonlyArray<readonly [Behaviour, Partial<Said>]> = [
      [{ status: 204 }, { delivered: true, status: 204, body: "", error: null }],
      [
        { status: 500, body: "x".repeat(5_000) },
        { status: 500, body: "x".repeat(4_096), error: null },
      ],
      [
        { status: 302, headers: { location: "/elsewhere" } },
        { status: 302, error: null },
      ],
      [{ status: 410 }, { status: 410, error: null }],
      ["reset", { ...none, error: expect.stringMatching(/reset/) as string }],
      ["garbage", { ...none, error: expect.stringMatching(/not valid HTTP/) as string }],
      ["endless-body", { status: 200, error: "The answer is longer than 64 KiB." }],
    ]
    for (const [behaviour, said] of cases) {
      receiver.behave(behaviour)
      expect(yield* test(tenant, id), JSON.stringify(behaviour)).toMatchObject({ delivered: false, ...said })
    }
    // A test deactivates nothing: only deliveries do.
    expect((yield* tenant.call("webhooks/list"))["webhook_endpoints"]).toMatchObject([{ active: true }])
    const refused = yield* test(tenant, yield* tenant.endpoint(`http://127.0.0.1:${yield* closedPort}`))
    expect(refused).toMatchObject({ delivered: false, ...none, error: expect.stringMatching(/refused/) as string })
  })

  it.effect("a document that nobody signed in for does not come over a connection of an org", function* () {
    const tenant = yield* makeTenant()
    const { send } = yield* TestServer
    const receiver = yield* makeReceiver()
    receiver.behave({ status: 200, body: "---\nname: deploy\ndescription: how\n---\n" })
    yield* test(tenant, yield* tenant.endpoint(receiver.url))
    const messages = [{ role: "user", content: "How?" }]
    const json = { messages, skillUrls: [`${receiver.url}/skill.md`] }
    expect((yield* send("POST", "/api/svc/chat", { json })).status).toBe(200)
    expect(receiver.received.map(({ method, connection }) => [method, connection])).toEqual([
      ["POST", 1],
      ["GET", 2],
    ])
  })
})

/** Whether a private address may be called, by the mode and by ALLOW_PRIVATE_NETWORKS. */
const modes = {
  "guarded mode": { environment: guarded, failure: "refused_address" },
  "guarded mode with ALLOW_PRIVATE_NETWORKS=true": {
    environment: { ...guarded, ALLOW_PRIVATE_NETWORKS: "true" },
    // It is called, and its certificate is invalid.
    failure: "tls",
  },
  "open mode": { environment: {}, failure: null },
  "open mode with ALLOW_PRIVATE_NETWORKS=false": {
    environment: { ALLOW_PRIVATE_NETWORKS: "false" },
    failure: "refused_address",
  },
} as const

for (const [mode, { environment, failure }] of Object.entries(modes)) {
  layer(TestServer.layer(onPostgres(environment)), { excludeTestServices: true })(mode, (it) => {
    it.effect(`a delivery to a private address: ${failure ?? "delivered"}`, function* () {
      const isGuarded = "ADMIN_TOKEN" in environment
      const tenant = yield* makeTenant(isGuarded ? adminToken : undefined)
      const receiver = yield* makeReceiver(isGuarded ? { tls: selfSigned({ names: ["localhost"] }) } : {})
      // A literal address is refused at once, in every field with a receiver's url; a name when it is called.
      const literal = yield* tenant.ask("webhooks/create", { url: receiver.url, signing_secret: "s" })
      const byName = receiver.url.replace("127.0.0.1", "localhost")
      const isRefused = failure === "refused_address"
      expect(literal.status).toBe(isRefused ? 400 : 200)
      const warned = isRefused ? [expect.stringMatching(/^Nothing can be sent to this url now: The host/)] : [undefined]
      const named = { url: byName, signing_secret: "s", active: false }
      const created = yield* tenant.call("webhooks/create", named)
      expect([created["warning"]], mode).toEqual(warned)
      yield* tenant.call("webhooks/delete", { id: created["webhook_endpoint_id"] })
      if (isRefused) {
        const [address, callback] = [{ url: receiver.url }, { workflow: "w", callback_url: receiver.url }]
        const id = yield* tenant.endpoint(byName, { active: false })
        for (const answer of [
          literal,
          yield* tenant.ask("webhooks/update", { id, ...address }),
          yield* tenant.ask("jobs/create", callback),
          yield* tenant.ask("schedules/create", { ...callback, cron: "0 4 * * *" }),
        ]) {
          const message = expect.stringMatching(/^(callback_)?url must not have a private, reserved/) as string
          expect(answer.json).toMatchObject({ success: false, code: "invalid_request", message })
        }
        yield* tenant.call("webhooks/delete", { id })
      } else {
        yield* tenant.call("webhooks/delete", { id: (literal.json as Fields)["webhook_endpoint_id"] })
      }
      const said = yield* test(tenant, yield* tenant.endpoint(byName))
      expect(said).toMatchObject({ delivered: failure === null, status: failure === null ? 200 : null })
      if (isRefused) expect(said.error).toMatch(/private|loopback|not called|address/i)
      const delivery = yield* tenant.attempted(yield* tenant.finished())
      expect(delivery).toMatchObject({ attempt_log: [{ failure, error: said.error }] })
      // The same for a job's own callback.
      const callback_url = isRefused ? byName : receiver.url
      const called = yield* tenant.attempted(yield* tenant.finished({ callback_url, callback_secret: "s" }))
      expect(called).toMatchObject({ webhook_endpoint_id: null, attempt_log: [{ failure }] })
      expect(receiver.connections().accepted > 0).toBe(!isRefused)
    })
  })
}
