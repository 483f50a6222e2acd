import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { createHmac, createPublicKey, verify } from "node:crypto"
import { layer } from "../../support/it.ts"
import { makeReceiver, type Received } from "../../support/receiver.ts"
import { embedded, onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { makeTenant } from "../tenants.ts"

/** Verifies a signature of Standard Webhooks 1.0: whpk_ and 32 bytes; v1a and the signature of id, time and body. */
const isSignedBy = ({ body, headers }: Received, publicKey: string) => {
  expect(publicKey).toMatch(/^whpk_[A-Za-z0-9+/]{43}=$/)
  // The fixed start of an Ed25519 key in SPKI (RFC 8410).
  const spki = Buffer.concat([
    Buffer.from("302a300506032b6570032100", "hex"),
    Buffer.from(publicKey.slice(5), "base64"),
  ])
  const key = createPublicKey({ key: spki, type: "spki", format: "der" })
  const content = Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`), body])
  return String(headers["webhook-signature"])
    .split(" ")
    .filter((one) => one.startsWith("v1a,"))
    .some((one) => verify(null, content, key, Buffer.from(one.slice(4), "base64")))
}

const servers = {
  "the embedded database": TestServer.layer(embedded, { endlessSleeps: true }),
  PostgreSQL: TestServer.layer(onPostgres(), { endlessSleeps: true }),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`settings of endpoints on ${database}`, (it) => {
    it.effect(
      "every operation of an endpoint takes webhook_endpoint_id in place of id, and one of the two",
      function* () {
        const receiver = yield* makeReceiver()
        const tenant = yield* makeTenant()
        const made = yield* tenant.call("webhooks/create", { url: receiver.url, signing_secret: "s" })
        const other = { webhook_endpoint_id: made["webhook_endpoint_id"] as string }
        const data = { big: 1 }
        expect(yield* tenant.call("webhooks/get", other)).toMatchObject(other)
        yield* tenant.call("webhooks/update", { ...other, description: "by its other name" })
        expect(yield* tenant.call("webhooks/get", other)).toMatchObject({ description: "by its other name" })
        expect(yield* tenant.call("webhooks/test", { ...other, type: "a.b", data })).toMatchObject({ delivered: true })
        for (const [operation, rest] of Object.entries({ get: {}, update: { active: true }, test: {}, delete: {} })) {
          const both = yield* tenant.ask(`webhooks/${operation}`, {
            id: made["webhook_endpoint_id"],
            ...other,
            ...rest,
          })
          const says = "exactly one of id and webhook_endpoint_id"
          expect([both.status, both.text], operation).toEqual([400, expect.stringContaining(says)])
          const wrong = yield* tenant.ask(`webhooks/${operation}`, { schedule_id: "a", ...rest })
          const hint = "schedule_id is not a field of this operation (did you mean id?)"
          expect([wrong.status, wrong.text], operation).toEqual([400, expect.stringContaining(hint)])
          if (operation === "get") continue
          const none = yield* tenant.ask(`webhooks/${operation}`, rest)
          expect([none.status, none.text], operation).toEqual([400, expect.stringContaining(says)])
        }
        yield* tenant.call("webhooks/delete", other)
        expect((yield* tenant.ask("webhooks/get", other)).status).toBe(404)
        const named = yield* tenant.ask("schedules/get", { id: "a" })
        expect(named.text).toContain("id is not a field of this operation (did you mean schedule_id?)")
      },
    )

    it.effect("extra headers are sent with every request and test, and are never shown", function* () {
      const { logs, sql } = yield* TestServer
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      const headers = { Authorization: "Bearer top-secret", "x-team": "billing" }
      const id = yield* tenant.endpoint(receiver.url, { headers })
      yield* tenant.call("events/publish", { type: "a.b", data: 1 })
      yield* receiver.arrived(1)
      yield* tenant.call("webhooks/test", { id })
      for (const received of receiver.received) {
        expect(received.headers).toMatchObject({ authorization: "Bearer top-secret", "x-team": "billing" })
        expect(received.headers["content-type"]).toBe("application/json")
      }
      const shown = yield* tenant.call("webhooks/get", { id })
      expect(shown).toMatchObject({ headers: ["Authorization", "x-team"], event_types: null, ordered: false })
      const stored = yield* sql`SELECT * FROM webhook_endpoints`
      const audit = yield* sql`SELECT * FROM audit_log`
      for (const text of [JSON.stringify([shown, stored, audit]), logs()]) expect(text).not.toContain("top-secret")
      const url = "https://localhost:9/"
      const moved = yield* tenant.ask("webhooks/update", { id, url })
      expect(moved.status).toBe(400)
      expect(moved.text).toContain("Send headers too, or headers: null.")
      yield* tenant.call("webhooks/update", { id, headers: null })
      yield* tenant.call("events/publish", { type: "a.b", data: 2 })
      yield* receiver.arrived(3)
      expect(receiver.received[2]!.headers).not.toHaveProperty("authorization")
    })

    /**
     * Promise (Moving to Gatehouse): A receiver that was written for Svix gets the published data alone, under
     * `svix-id`, `svix-timestamp` and `svix-signature`; Svix's own libraries in JavaScript, Python and Go verify it.
     */
    it.effect(
      "a receiver of Svix is sent the published data under Svix's names, with the secret that was made",
      function* () {
        const tenant = yield* makeTenant()
        const receiver = yield* makeReceiver()
        const made = yield* tenant.call("webhooks/create", {
          url: receiver.url,
          generate_signing_secret: true,
          payload: "data",
          header_names: "svix",
          external_id: "ep_2Wq5",
          metadata: { team: "billing" },
          channels: ["project_1"],
        })
        const secret = String(made["signing_secret"])
        expect(secret).toMatch(/^whsec_[\w+/]{32}$/)
        const found = yield* tenant.call("webhooks/get", { external_id: "ep_2Wq5" })
        expect(found).toMatchObject({
          webhook_endpoint_id: made["webhook_endpoint_id"],
          payload: "data",
          header_names: "svix",
          metadata: { team: "billing" },
          channels: ["project_1"],
        })
        expect(JSON.stringify(found)).not.toContain(secret)
        const data = { text: `","data": 1 😀`, big: 12345678901234, list: [null] }
        const published = yield* tenant.call("events/publish", { type: "user_created", data, channels: ["project_1"] })
        expect(published).toMatchObject({ deliveries: 1 })
        expect(yield* tenant.call("events/publish", { type: "User.Created", data })).toMatchObject({ deliveries: 0 })
        yield* receiver.arrived(1)
        yield* tenant.call("webhooks/test", { id: made["webhook_endpoint_id"], type: "user_created", data })
        for (const { body, headers } of receiver.received) {
          expect(body.toString()).toBe(JSON.stringify(data))
          expect(headers).not.toHaveProperty("webhook-id")
          const names = { "svix-id": headers["svix-id"], "svix-timestamp": headers["svix-timestamp"] }
          const content = `${names["svix-id"]}.${names["svix-timestamp"]}.${body.toString()}`
          const key = Buffer.from(secret.slice("whsec_".length), "base64")
          expect(headers["svix-signature"]).toBe(`v1,${createHmac("sha256", key).update(content).digest("base64")}`)
        }
        const [delivery] = yield* tenant.deliveries({ webhook_endpoint_id: made["webhook_endpoint_id"] })
        expect((yield* tenant.delivery(delivery!.delivery_id)).payload).toBe(JSON.stringify(data))
        for (const [fields, message] of [
          [{ external_id: "ep_2Wq5" }, "external_id"],
          [{ channels: [] }, "channels"],
          [{ channels: ["a b"] }, "channels"],
          [{ payload: "raw" }, "payload"],
          [{ header_names: "Svix" }, "header_names"],
          [{ metadata: { a: "x".repeat(5000) } }, "metadata"],
          [{ headers: { "svix-id": "1" } }, "headers"],
        ] as const) {
          const refused = yield* tenant.ask("webhooks/create", { url: receiver.url, signing_secret: "s", ...fields })
          expect(refused.status, message).toBe("external_id" in fields ? 409 : 400)
          expect(refused.text).toContain(message)
        }
        for (const by of [{}, { id: "a", external_id: "b" }]) {
          expect((yield* tenant.ask("webhooks/get", by)).text).toContain("either id or external_id")
        }
        // As before, on change: the defaults.
        yield* tenant.call("webhooks/update", {
          id: made["webhook_endpoint_id"],
          payload: null,
          header_names: null,
          channels: null,
        })
        yield* tenant.call("events/publish", { type: "a.b", data: 1 })
        yield* receiver.arrived(3)
        expect(receiver.received[2]!.headers).toHaveProperty("webhook-id")
        expect(JSON.parse(receiver.received[2]!.body.toString())).toMatchObject({ event: "a.b", data: 1 })
      },
    )

    /** Promise (Authorized requests) */
    it.effect(
      "requests are authorized by a token, and answers, logs and the database do not have the secret",
      function* () {
        const { logs, sql } = yield* TestServer
        const tenant = yield* makeTenant()
        const [receiver, issuer] = [yield* makeReceiver(), yield* makeReceiver()]
        issuer.behave({ status: 200, body: `{"access_token":"top-token","expires_in":60}` })
        const auth = {
          type: "oauth2",
          token_url: issuer.url,
          client_id: "me",
          client_secret: "top-secret",
          scope: "a b",
        }
        const id = yield* tenant.endpoint(receiver.url, { auth, headers: { authorization: "Basic x" } })
        yield* tenant.call("events/publish", { type: "a.b", data: 1 })
        yield* receiver.arrived(1)
        yield* tenant.call("webhooks/test", { id })
        for (const { headers } of receiver.received) expect(headers.authorization).toBe("Bearer top-token")
        const shown = yield* tenant.call("webhooks/get", { id })
        const { client_secret: _, ...visible } = auth
        expect(shown).toHaveProperty("auth", visible)
        issuer.behave({ status: 400, body: `{"error":"invalid_scope"}` })
        yield* tenant.call("webhooks/update", { id, auth: { ...auth, scope: "c" } })
        const tested = yield* tenant.call("webhooks/test", { id })
        expect(tested).toMatchObject({ delivered: false, status: null })
        expect(tested["error"]).toContain("responds with status 400 (invalid_scope)")
        for (const [fields, message] of [
          [{ auth: { type: "oauth2", client_id: "a", client_secret: "b" } }, "oauth2 needs token_url"],
          [{ auth: { ...auth, private_key: "-----BEGIN PRIVATE KEY-----" } }, "oauth2 takes no private_key"],
          [{ auth: { ...auth, token_url: "ftp://example.com" } }, "auth.token_url"],
          [
            { auth: { type: "mtls", certificate: "-----BEGIN CERTIFICATE-----", private_key: "x" } },
            "auth.private_key must be PEM that begins with -----BEGIN.",
          ],
          [
            { auth: { type: "mtls", certificate: "-----BEGIN CERTIFICATE-----", private_key: "-----BEGIN x" } },
            "auth.private_key must be one private key in PEM that is not encrypted: RSA of 2,048 to 4,096 bits",
          ],
          [{ url: "https://localhost:9/", headers: null }, "The same holds for auth."],
        ] as const) {
          const refused = yield* tenant.ask("webhooks/update", { id, ...fields })
          expect(refused.status, message).toBe(400)
          expect(refused.text).toContain(message)
        }
        const [stored, audit] = [yield* sql`SELECT * FROM webhook_endpoints`, yield* sql`SELECT * FROM audit_log`]
        for (const text of [JSON.stringify([shown, stored, audit]), logs()]) {
          expect(text).not.toContain("top-secret")
          expect(text).not.toContain("top-token")
        }
        yield* tenant.call("webhooks/update", { id, auth: null })
        expect(yield* tenant.call("webhooks/get", { id })).toMatchObject({ auth: null })
        yield* tenant.call("webhooks/test", { id })
        expect(receiver.received.at(-1)!.headers.authorization).toBe("Basic x")
      },
    )

    /**
     * Promise (What an endpoint asks for): An endpoint with a batch gets each event in exactly one element of an
     * array, while nothing fails; the events of a time span are due together, at its end. Each delivery has the
     * outcome of its request.
     */
    it.effect("events are sent together, in signed arrays, and each has its own delivery", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      const batch = { max: 20, within_ms: 50 }
      const id = yield* tenant.endpoint(receiver.url, { batch })
      expect(yield* tenant.call("webhooks/get", { id })).toMatchObject({ batch })
      const events = Array.from({ length: 50 }, (_, n) => ({ type: "a.b", data: n }))
      yield* tenant.call("events/publish-batch", { events })
      const all = () =>
        receiver.received.flatMap(({ body }) => JSON.parse(body.toString()) as ReadonlyArray<{ readonly data: number }>)
      yield* until("all events", Effect.sync(all), (found) => found.length === 50)
      expect(
        all()
          .map(({ data }) => data)
          .toSorted((a, b) => a - b),
      ).toEqual(events.map(({ data }) => data))
      // One claim may not take all of them; each takes many.
      expect(receiver.received.length).toBeLessThan(25)
      for (const { body, headers } of receiver.received) {
        expect(JSON.parse(body.toString()).length).toBeLessThanOrEqual(20)
        expect(headers["x-event-type"]).toBe("batch")
      }
      expect(new Set(receiver.received.map(({ headers }) => headers["webhook-id"])).size).toBe(receiver.received.length)
      const states = Effect.map(tenant.deliveries({}), (found) => found.map(({ state }) => state))
      yield* until("the records", states, (found) => found.every((state) => state === "delivered"))
      const tested = yield* tenant.call("webhooks/test", { id, type: "a.b", data: 1 })
      expect(JSON.parse(String(tested["payload"]))).toMatchObject([{ event: "a.b", data: 1 }])
      for (const wrong of [
        { max: 0, within_ms: 1 },
        { max: 101, within_ms: 1 },
        { max: 1, within_ms: 60_001 },
        { max: 1 },
      ]) {
        expect((yield* tenant.ask("webhooks/update", { id, batch: wrong })).status).toBe(400)
      }
    })

    it.effect("events that are sent together have at most 1 MiB, also in characters of three bytes", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url, { batch: { max: 100, within_ms: 50 } })
      // The request has a little less than 1 MiB; with their envelopes, the events have a little more.
      const events = Array.from({ length: 100 }, () => ({ type: "a.b", data: "漢".repeat(3_470) }))
      yield* tenant.call("events/publish-batch", { events })
      const all = () => receiver.received.flatMap(({ body }) => JSON.parse(body.toString()) as ReadonlyArray<unknown>)
      yield* until("all events", Effect.sync(all), (found) => found.length === 100)
      expect(Math.max(...receiver.received.map(({ body }) => body.length))).toBeLessThanOrEqual(1024 * 1024)
    })

    it.effect("a filter decides by the published data which events an endpoint receives", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      const filter = { "data.plan": ["pro", "team"], "data.amount": { gte: 1000 } }
      const id = yield* tenant.endpoint(receiver.url, { filter })
      expect(yield* tenant.call("webhooks/get", { id })).toMatchObject({ filter })
      for (const [data, deliveries] of [
        [{ plan: "pro", amount: 999 }, 0],
        [{ plan: "free", amount: 5000 }, 0],
        ["pro", 0],
        [{ plan: "team", amount: 1000 }, 1],
      ] as const) {
        expect(yield* tenant.call("events/publish", { type: "order.paid", data })).toMatchObject({ deliveries })
      }
      yield* receiver.arrived(1)
      expect(JSON.parse(receiver.received[0]!.body.toString())).toMatchObject({ data: { plan: "team" } })
      // A test is sent whatever the filter says.
      expect(yield* tenant.call("webhooks/test", { id })).toMatchObject({ delivered: true })
      const refused = yield* tenant.ask("webhooks/update", { id, filter: { "data.plan": { like: "p%" } } })
      expect(refused.status).toBe(400)
      expect(refused.text).toContain("filter must give data.plan one of the operators gt, gte")
      yield* tenant.call("webhooks/update", { id, filter: null })
      expect(yield* tenant.call("events/publish", { type: "order.paid", data: 1 })).toMatchObject({ deliveries: 1 })
    })

    // Seen failing: an org with a filter sent no events of jobs to endpoints without one, nor to callbacks.
    it.effect("a filter of an endpoint takes nothing from the other receivers of a job's event", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url, { event_types: ["order.*"], filter: { "data.plan": "pro" } })
      yield* tenant.endpoint(`${receiver.url}/all`)
      yield* tenant.finished({})
      yield* tenant.finished({ callback_url: `${receiver.url}/callback`, callback_secret: "secret" })
      yield* receiver.arrived(2)
      expect(receiver.received.map(({ path }) => path).toSorted()).toEqual(["/all", "/callback"])
    })

    it.effect("an ed25519 endpoint is also signed by the org's key, and by both keys while it changes", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      const id = yield* tenant.endpoint(receiver.url, { signature: "ed25519" })
      const keysOf = (answer: object) => (answer as { readonly public_keys: ReadonlyArray<string> }).public_keys
      const [first, ...others] = keysOf(yield* tenant.call("webhooks/public-key"))
      expect(others).toEqual([])
      yield* tenant.call("events/publish", { type: "a.b", data: 1 })
      yield* receiver.arrived(1)
      expect(receiver.received[0]!.headers["webhook-signature"]).toMatch(/^v1,[^ ]+ v1a,[^ ]+$/)
      expect(isSignedBy(receiver.received[0]!, first!)).toBe(true)
      const rotated = keysOf(yield* tenant.call("webhooks/public-key/rotate"))
      expect(rotated).toEqual([expect.not.stringContaining(first!), first])
      expect(keysOf(yield* tenant.call("webhooks/public-key"))).toEqual(rotated)
      yield* tenant.call("webhooks/test", { id })
      yield* tenant.call("events/publish", { type: "a.b", data: 2 })
      yield* receiver.arrived(3)
      for (const received of receiver.received.slice(1)) {
        expect(rotated.map((key) => isSignedBy(received, key))).toEqual([true, true])
      }
      // Another org has its own keys.
      const foreign = keysOf(yield* (yield* makeTenant()).call("webhooks/public-key"))
      expect(isSignedBy(receiver.received[0]!, foreign[0]!)).toBe(false)
      yield* tenant.call("webhooks/update", { id, signature: null })
      yield* tenant.call("events/publish", { type: "a.b", data: 3 })
      yield* receiver.arrived(4)
      expect(receiver.received[3]!.headers["webhook-signature"]).toMatch(/^v1,[^ ]+$/)
    })

    it.effect("ordered: a hundred events arrive one at a time, in order", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url, { ordered: true })
      const batch = (from: number) => ({
        events: Array.from({ length: 50 }, (_, n) => ({ type: "a.b", data: from + n })),
      })
      yield* tenant.call("events/publish-batch", batch(0))
      yield* tenant.call("events/publish-batch", batch(50))
      yield* receiver.arrived(100)
      const arrived = receiver.received.map(({ body }) => (JSON.parse(body.toString()) as { data: number }).data)
      expect(arrived).toEqual(Array.from({ length: 100 }, (_, n) => n))
    })

    it.effect("invalid settings are a 400 that names the field", function* () {
      const tenant = yield* makeTenant()
      const wrong = {
        event_types: [[], ["a b"], ["*.a"], ["key.unknown"], Array(51).fill("a.b"), "a.b"],
        headers: [{ host: "a" }, { "x-a": "" }, { "X-A": "1", "x-a": "2" }, [], "a"],
        max_per_second: [0, 1001, 1.5, "1"],
        ordered: ["true", 1],
        retry_delays: [[-1], [86_401], [1.5], Array(21).fill(1), 5],
        signature: ["v1a", ""],
      }
      for (const [field, values] of Object.entries(wrong)) {
        for (const value of values) {
          const body = { url: "https://example.com/", signing_secret: "s", [field]: value }
          const { status, text } = yield* tenant.ask("webhooks/create", body)
          expect([status, text], `${field} ${JSON.stringify(value)}`).toEqual([400, expect.stringContaining(field)])
        }
      }
    })
  })
}
