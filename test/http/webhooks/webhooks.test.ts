import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { keysOf } from "../operations.ts"
import { makeTenant, type Tenant } from "../tenants.ts"
import { faultOfWebhookError, nobody } from "./webhookOperations.ts"

const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/
const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
const url = "https://receiver.example/hooks"
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

interface Endpoint {
  readonly webhook_endpoint_id: string
  readonly url: string
  readonly description: string | null
  readonly active: boolean
  readonly created_at: string
  readonly updated_at: string
}
const list = (tenant: Tenant) =>
  Effect.map(
    tenant.call("webhooks/list"),
    (answer) => answer["webhook_endpoints"] as unknown as ReadonlyArray<Endpoint>,
  )

/** The sentence of a 400. */
const refusal = Effect.fnUntraced(function* (tenant: Tenant, path: string, json: unknown) {
  const answer = yield* tenant.ask(path, json)
  const at = `${path} ${JSON.stringify(json)}`.slice(0, 200)
  expect([answer.status, faultOfWebhookError(answer)], `${at} ${answer.text}`).toEqual([400, undefined])
  return (answer.json as { message: string }).message
})

/** Invalid urls, with their faults in open mode. */
const badUrls: ReadonlyArray<readonly [string, RegExp]> = [
  ["", /^url must be an absolute http or https URL\.$/],
  ["/hooks", /absolute/],
  ["receiver.example/hooks", /absolute/],
  ["//receiver.example", /absolute/],
  ["http:receiver.example", /absolute/],
  ["https:\\\\receiver.example", /absolute/],
  ["https://", /absolute/],
  ["https://a:99999/", /absolute/],
  ["https://[::1/", /absolute/],
  ["https://receiver.example:0/", /^url must have a port from 1 to 65,535, or none\.$/],
  ["ftp://receiver.example", /absolute/],
  ["file:///etc/passwd", /absolute/],
  ["javascript:alert(1)", /absolute/],
  ["wss://receiver.example", /absolute/],
  ["https://user:password@receiver.example", /^url must have no user name or password in it\.$/],
  ["https://user@receiver.example", /user name/],
  ["https://@receiver.example", /user name/],
  [" https://receiver.example", /^url must be a URL without white space or control characters\.$/],
  ["https://receiver.example/a b", /white space/],
  ["https://receiver.example/\n", /white space/],
  ["https://receiver.example/\0", /^url must be text without NUL/],
  ["https://receiver.example/\ud800", /^url must be text without NUL/],
  [`${url}?${"a".repeat(2_049 - url.length - 1)}`, /^url must be at most 2,048 characters\.$/],
]

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("webhook endpoints", (it) => {
  it.effect("are created, listed oldest first, changed and deleted, with exactly the documented fields", function* () {
    const tenant = yield* makeTenant()
    const created = yield* tenant.ask("webhooks/create", { url, signing_secret: secret })
    expect([created.status, String(keysOf(created.json))]).toEqual([200, "message,success,webhook_endpoint_id"])
    expect(created.headers).toMatchObject({ "content-type": "application/json", "cache-control": "no-store" })
    const { success, message, webhook_endpoint_id: id } = created.json as Record<string, string>
    expect([success, typeof message]).toEqual([true, "string"])
    expect(id).toMatch(ulid)
    const second = yield* tenant.endpoint(`${url}?2`, { description: " second \u{1f4da} ", active: false })
    const [one, two, ...more] = yield* list(tenant)
    expect(String(keysOf(one))).toBe(
      "active,created_at,deactivated_reason,description,failing_since,updated_at,url,webhook_endpoint_id",
    )
    expect(one).toMatchObject({ webhook_endpoint_id: id, url, description: null, active: true })
    expect(two).toMatchObject({ webhook_endpoint_id: second, description: " second \u{1f4da} ", active: false })
    expect(more).toEqual([])
    for (const at of [one!.created_at, one!.updated_at]) expect(at).toMatch(time)

    const changed = yield* tenant.ask("webhooks/update", { id, url: `${url}?1` })
    expect([changed.status, String(keysOf(changed.json))]).toEqual([200, "message,success"])
    expect(yield* list(tenant)).toEqual([
      { ...one, url: `${url}?1`, updated_at: expect.stringMatching(time) as unknown },
      two,
    ])
    const deleted = yield* tenant.ask("webhooks/delete", { id: second })
    expect([deleted.status, String(keysOf(deleted.json))]).toEqual([200, "message,success"])
    expect((yield* list(tenant)).map((endpoint) => endpoint.webhook_endpoint_id)).toEqual([id])
    for (const path of ["webhooks/delete", "webhooks/test"]) {
      expect((yield* tenant.ask(path, { id: second })).status, path).toBe(404)
    }
    expect((yield* tenant.ask("webhooks/update", { id: second, active: true })).status).toBe(404)
    expect((yield* tenant.ask("webhooks/update", { id: nobody, url: "https://a.example" })).status).toBe(404)
  })

  it.effect(
    "an update changes each field separately; a missing field stays, and null is not a missing field",
    function* () {
      const tenant = yield* makeTenant()
      const id = yield* tenant.endpoint(url, { description: "first" })
      const update = (fields: object) => tenant.call("webhooks/update", { id, ...fields })
      const now = Effect.map(list(tenant), ([endpoint]) => endpoint!)
      const before = yield* now
      yield* update({ signing_secret: "another" })
      expect(yield* now).toMatchObject({ url, description: "first", active: true })
      yield* update({ active: false })
      expect(yield* now).toMatchObject({ url, description: "first", active: false })
      yield* update({ description: null })
      expect(yield* now).toMatchObject({ url, description: null, active: false })
      yield* update({ description: "" })
      yield* update({ active: true, url: `${url}?changed` })
      const after = yield* now
      expect(after).toMatchObject({ url: `${url}?changed`, description: "", active: true })
      expect(after.created_at).toBe(before.created_at)
      expect(after.updated_at >= before.updated_at).toBe(true)

      expect(yield* refusal(tenant, "webhooks/create", {})).toBe("url is required.")
      for (const fields of [
        {},
        { generate_signing_secret: false },
        { generate_signing_secret: true, signing_secret: "s" },
      ]) {
        const sentence = yield* refusal(tenant, "webhooks/create", { url, ...fields })
        expect(sentence).toContain("either signing_secret or generate_signing_secret: true")
      }
      const wrong: ReadonlyArray<readonly [object, string]> = [
        [{ url: null }, "url must be a string."],
        [{ signing_secret: null }, "signing_secret must be a string."],
        [{ signing_secret: 7 }, "signing_secret must be a string."],
        [{ active: null }, "active must be true or false."],
        [{ active: "true" }, "active must be true or false."],
        [{ description: 1 }, "description must be a string or null."],
      ]
      for (const [fields, sentence] of wrong) {
        const whole = { url, signing_secret: secret, ...fields }
        expect(yield* refusal(tenant, "webhooks/create", whole)).toBe(sentence)
        expect(yield* refusal(tenant, "webhooks/update", { id, ...fields })).toBe(sentence)
      }
      const nothing =
        /id with at least one of url, signing_secret, description, active, external_id, metadata, channels, filter, payload, header_names, batch, event_types, headers, auth, max_per_second, ordered, retry_delays, signature\.$/
      for (const body of [{ id }, { id: nobody }]) {
        expect(yield* refusal(tenant, "webhooks/update", body)).toMatch(nothing)
      }
      expect(yield* refusal(tenant, "webhooks/update", { active: true })).toBe(
        "The request body must be an object with exactly one of id and webhook_endpoint_id.",
      )
      for (const path of ["webhooks/delete", "webhooks/test"]) {
        expect(yield* refusal(tenant, path, { id: null })).toBe("id must be a string.")
        expect(yield* refusal(tenant, path, { id: "" })).toBe("id must be at least 1 character.")
      }
      expect(yield* now).toEqual(after)
    },
  )

  it.effect("a url is absolute http or https without credentials, with at most 2,048 characters", function* () {
    const tenant = yield* makeTenant()
    const id = yield* tenant.endpoint(url)
    for (const [bad, sentence] of badUrls) {
      expect(yield* refusal(tenant, "webhooks/create", { url: bad, signing_secret: secret }), bad).toMatch(sentence)
      expect(yield* refusal(tenant, "webhooks/update", { id, url: bad }), bad).toMatch(sentence)
      const callback = yield* refusal(tenant, "jobs/create", { workflow: "w", callback_url: bad })
      expect(callback, bad).toMatch(/^callback_url must /)
      const scheduled = { workflow: "w", cron: "0 4 * * *", callback_url: bad }
      expect(yield* refusal(tenant, "schedules/create", scheduled), bad).toBe(callback)
    }
    const good = [
      `${url}?${"a".repeat(2_048 - url.length - 1)}`,
      "http://receiver.example",
      "HTTPS://RECEIVER.example:8443/%20?q=@#f",
      "http://127.0.0.1:4000",
      "http://[::1]:4000/",
      "https://пример.example/путь",
    ]
    for (const one of good) yield* tenant.endpoint(one)
    // Stored as it was sent.
    expect((yield* list(tenant)).map((endpoint) => endpoint.url)).toEqual([url, ...good])
  })

  it.effect("a signing_secret has 1 to 512 characters, and is in no answer", function* () {
    const tenant = yield* makeTenant()
    for (const good of ["s", "a".repeat(512), "ключ", secret]) {
      const id = yield* tenant.endpoint(url, { signing_secret: good })
      yield* tenant.call("webhooks/update", { id, signing_secret: good })
    }
    expect((yield* tenant.ask("webhooks/list")).text).not.toMatch(/secret|whsec_|ключ|aaaa/)
    const [{ webhook_endpoint_id: id } = { webhook_endpoint_id: "" }] = yield* list(tenant)
    for (const [bad, sentence] of [
      ["", "signing_secret must be at least 1 character."],
      ["a".repeat(513), "signing_secret must be at most 512 characters."],
      ["a\0b", "signing_secret must be text without NUL characters or lone surrogates."],
      ["a\udc00", "signing_secret must be text without NUL characters or lone surrogates."],
    ] as const) {
      expect(yield* refusal(tenant, "webhooks/create", { url, signing_secret: bad })).toBe(sentence)
      expect(yield* refusal(tenant, "webhooks/update", { id, signing_secret: bad })).toBe(sentence)
      const callback = sentence.replace("signing", "callback")
      expect(yield* refusal(tenant, "jobs/create", { workflow: "w", callback_secret: bad })).toBe(callback)
    }
  })
})

layer(TestServer.layer(onPostgres(guarded)), { excludeTestServices: true })("in guarded mode", (it) => {
  it.effect("lists select one type, not a pattern, and nothing by an unknown id", function* () {
    const tenant = yield* makeTenant(adminToken)
    const pattern = "an exact event type, such as invoice.paid: a list takes no patterns"
    for (const type of ["invoice.*", "*"]) {
      const fault = yield* refusal(tenant, "webhooks/deliveries/list", { event_type: type })
      expect(fault).toBe(`event_type must be ${pattern}.`)
      expect(yield* refusal(tenant, "events/list", { type })).toBe(`type must be ${pattern}.`)
    }
    for (const filter of [{ webhook_endpoint_id: "nope" }, { job_id: "nope" }, { event_type: "Other" }]) {
      const { json } = yield* tenant.ask("webhooks/deliveries/list", filter)
      expect(json, JSON.stringify(filter)).toEqual({ deliveries: [], next_cursor: null })
    }
  })

  it.effect("urls that receive webhooks must be https", function* () {
    const tenant = yield* makeTenant(adminToken)
    const id = yield* tenant.endpoint(url)
    const http = "http://receiver.example"
    const sentence = "url must be an https URL."
    expect(yield* refusal(tenant, "webhooks/create", { url: http, signing_secret: secret })).toBe(sentence)
    expect(yield* refusal(tenant, "webhooks/update", { id, url: http })).toBe(sentence)
    const callback = { workflow: "w", callback_url: http, callback_secret: secret }
    expect(yield* refusal(tenant, "jobs/create", callback)).toBe(`callback_${sentence}`)
    const schedule = { ...callback, cron: "0 4 * * *" }
    expect(yield* refusal(tenant, "schedules/create", schedule)).toBe(`callback_${sentence}`)
    expect(yield* refusal(tenant, "webhooks/create", { url: "receiver", signing_secret: secret })).toBe(
      "url must be an absolute https URL.",
    )
  })
})
