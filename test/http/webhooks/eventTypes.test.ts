import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { it, layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { adminToken as as, embedded, onPostgres, TestServer } from "../../support/server.ts"
import { twoReplicas } from "../keys/keyRaces.ts"
import { must } from "../operations.ts"
import { openPortal, portalLink } from "../sessions/signedIn.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

const v1 = { type: "object", required: ["invoice"], properties: { invoice: { type: "string" } } }
const v2 = { ...v1, required: ["invoice", "amount"], properties: { ...v1.properties, amount: { minimum: 0 } } }
const invoicePaid = {
  name: "invoice.paid",
  description: "An invoice was paid.",
  group: "Billing",
  schemas: { "9": v1, "10": v2 },
  example: { invoice: "in_42", amount: 1200 },
}

const setStrict = Effect.fnUntraced(function* ({ orgId }: Tenant, strictEvents: boolean) {
  const { send } = yield* TestServer
  return yield* must(send, "PATCH", `/api/v0/orgs/${orgId}`, { json: { strictEvents } })
})
const refusal = (answer: { readonly status: number; readonly json: unknown }) => [
  answer.status,
  (answer.json as { readonly message?: string }).message,
]

const servers = {
  "the embedded database": TestServer.layer(embedded),
  PostgreSQL: TestServer.layer(onPostgres()),
}
for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`the catalogue on ${database}`, (it) => {
    // Seen failing: most were 503.
    it.effect("changes of one type that are asked for at once are all made", function* () {
      const tenant = yield* makeTenant()
      yield* tenant.call("event-types/create", { name: "invoice.paid" })
      const versions = Array.from({ length: 20 }, (_, n) => String(n + 1))
      const update = (version: string) =>
        tenant.call("event-types/update", { name: "invoice.paid", schemas: { [version]: v1 } })
      yield* Effect.forEach(versions, update, { concurrency: "unbounded", discard: true })
      const { schemas } = yield* tenant.call("event-types/get", { name: "invoice.paid" })
      expect(Object.keys(schemas!).toSorted()).toEqual(versions.toSorted())
    })

    it.effect(
      "types are created, changed version by version, listed in pages and deleted; another org sees none",
      function* () {
        const [tenant, other] = [yield* makeTenant(), yield* makeTenant()]
        yield* tenant.call("event-types/create", invoicePaid)
        yield* tenant.call("event-types/create", { name: "a.first" })
        const made = yield* tenant.call("event-types/get", { name: "invoice.paid" })
        expect(made).toMatchObject({ ...invoicePaid, deprecated: false })
        expect(yield* tenant.call("event-types/get", { name: "a.first" })).toMatchObject({
          ...{ description: null, group: null, schemas: {}, example: null, deprecated: false },
        })
        yield* tenant.call("event-types/update", {
          ...{ name: "invoice.paid", deprecated: true, group: null, schemas: { "9": null, "11": true } },
        })
        const changed = yield* tenant.call("event-types/get", { name: "invoice.paid" })
        expect(changed).toMatchObject({ deprecated: true, group: null, description: "An invoice was paid." })
        expect(changed["schemas"]).toEqual({ "10": v2, "11": true })
        const first = yield* tenant.call("event-types/list", { limit: 1 })
        expect(first).toMatchObject({ event_types: [{ name: "a.first" }], next_cursor: "a.first" })
        const second = yield* tenant.call("event-types/list", { limit: 1, cursor: "a.first" })
        expect(second).toMatchObject({ event_types: [{ name: "invoice.paid" }], next_cursor: null })
        expect(refusal(yield* tenant.ask("event-types/create", { name: "a.first" }))).toEqual([
          409,
          "The catalogue has this event type. Change it with event-types/update.",
        ])
        for (const path of ["get", "update", "delete"]) {
          const change = path === "update" ? { deprecated: true } : {}
          const answer = yield* other.ask(`event-types/${path}`, { name: "a.first", ...change })
          expect(refusal(answer)).toEqual([404, "The catalogue has no such event type."])
        }
        expect(yield* other.call("event-types/list", {})).toEqual({ event_types: [], next_cursor: null })
        yield* tenant.call("event-types/delete", { name: "a.first" })
        expect((yield* tenant.ask("event-types/get", { name: "a.first" })).status).toBe(404)
      },
    )

    it.effect("what cannot be in a catalogue is a 400 that names its place", function* () {
      const tenant = yield* makeTenant()
      yield* tenant.call("event-types/create", { name: "a.kept", schemas: { "1": v1 } })
      const many = Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`v${n}`, true]))
      for (const [fields, sentence] of [
        [{ schemas: { "1": { $ref: "other.json" } } }, "schemas.1.$ref must be a place in this schema"],
        [{ schemas: { "1": { items: { $ref: "#" } } } }, "schemas.1.items.$ref leads back to itself"],
        [{ schemas: { "1": 1 } }, "schemas.1 must be a JSON Schema"],
        [{ schemas: { "a b": {} } }, "schemas.a b must be a version: 1 to 32 letters"],
        [{ schemas: many }, "schemas must have at most 20 versions."],
        [{ schemas: { "1": { title: "x".repeat(65_536) } } }, "schemas.1 must have at most 64 KiB of JSON."],
        [{ example: "x".repeat(65_536) }, "example must have at most 64 KiB of JSON."],
        [{ schemas: { "1": v1 }, example: { invoice: 1 } }, "example.invoice must be a string."],
      ] as const) {
        for (const request of [
          ["create", { name: "a.new", ...fields }],
          ["update", { name: "a.kept", ...fields }],
        ] as const) {
          const answer = yield* tenant.ask(`event-types/${request[0]}`, request[1])
          expect(refusal(answer)).toEqual([400, expect.stringContaining(sentence)])
        }
      }
      const own = yield* tenant.ask("event-types/create", { name: "key.created" })
      expect(own.status).toBe(400)
      expect(yield* tenant.call("event-types/list", {})).toMatchObject({ event_types: [{ name: "a.kept" }] })
    })

    /** Promise (Catalogues) */
    it.effect(
      "a strict org publishes what its catalogue has, and says where a payload breaks the newest schema",
      function* () {
        const tenant = yield* makeTenant()
        yield* tenant.call("event-types/create", invoicePaid)
        yield* tenant.call("event-types/create", { name: "a.any" })
        const publish = (type: string, data: unknown, more = {}) =>
          tenant.ask("events/publish", { type, data, ...more })
        expect((yield* publish("unknown.type", 1)).status).toBe(200)
        const keyed = { idempotency_key: "before" }
        const { event_id } = yield* tenant.call("events/publish", { type: "invoice.paid", data: {}, ...keyed })
        expect(yield* setStrict(tenant, true)).toMatchObject({ strictEvents: true })
        const unknown = "type must be in the catalogue of event types: unknown.type is not."
        expect(refusal(yield* publish("unknown.type", 1))).toEqual([400, unknown])
        expect(refusal(yield* publish("invoice.paid", { invoice: "in_1", amount: -1 }))).toEqual([
          400,
          "data.amount must be at least 0 (the newest schema of invoice.paid).",
        ])
        expect((yield* publish("invoice.paid", { invoice: "in_1", amount: 1 })).status).toBe(200)
        expect((yield* publish("a.any", null)).status).toBe(200)
        // The answer to an earlier request stays the same.
        const again = yield* tenant.call("events/publish", { type: "invoice.paid", data: {}, ...keyed })
        expect(again).toMatchObject({ event_id })
        const batch = yield* tenant.ask("events/publish-batch", {
          events: [
            { type: "a.any", data: 1 },
            { type: "invoice.paid", data: { invoice: 1, amount: 1 } },
          ],
        })
        expect(refusal(batch)).toEqual([
          400,
          "events.1.data.invoice must be a string (the newest schema of invoice.paid).",
        ])
        const { events } = yield* tenant.call("events/list", {})
        expect((events as unknown as ReadonlyArray<unknown>).length).toBe(4)
        // A change counts for the next request.
        yield* tenant.call("event-types/update", { name: "invoice.paid", schemas: { "11": v1 } })
        expect((yield* publish("invoice.paid", { invoice: "in_1" })).status).toBe(200)
        yield* tenant.call("event-types/delete", { name: "a.any" })
        expect((yield* publish("a.any", null)).status).toBe(400)
        yield* setStrict(tenant, false)
        expect((yield* publish("unknown.type", 1)).status).toBe(200)
      },
    )

    it.effect("a test of a type without data sends its example", function* () {
      const tenant = yield* makeTenant()
      yield* tenant.call("event-types/create", invoicePaid)
      yield* tenant.call("event-types/create", { name: "a.bare" })
      const receiver = yield* makeReceiver()
      const id = yield* tenant.endpoint(receiver.url)
      const dataOf = (fields: object) =>
        Effect.map(
          tenant.call("webhooks/test", { id, ...fields }),
          ({ payload }) => JSON.parse(payload!).data as unknown,
        )
      expect(yield* dataOf({ type: "invoice.paid" })).toEqual(invoicePaid.example)
      expect(yield* dataOf({ type: "invoice.paid", data: 1 })).toBe(1)
      expect(yield* dataOf({ type: "a.bare" })).toEqual({ test: true })
    })

    it.effect("a portal session reads the catalogue and changes nothing in it", function* () {
      const tenant = yield* makeTenant()
      yield* tenant.call("event-types/create", invoicePaid)
      const { send } = yield* TestServer
      const { headers } = yield* openPortal(yield* portalLink(tenant.headers))
      const ask = (path: string, json: object) => send("POST", `/v1/event-types/${path}`, { json, headers })
      expect((yield* ask("list", {})).json).toMatchObject({ event_types: [{ example: invoicePaid.example }] })
      expect((yield* ask("get", { name: "invoice.paid" })).status).toBe(200)
      for (const path of ["create", "update", "delete"]) {
        expect((yield* ask(path, { name: "invoice.paid" })).status).toBe(403)
      }
    })
  })
}

// Seen failing with a version of the catalogue that each process remembers alone: the other replica lets it through.
/**
 * Promise (Catalogues): A changed catalogue, or a changed setting of strict events, holds at every replica from its
 * answer on; a refusal names the place in the payload.
 */
it.live("a changed catalogue or setting holds at the other replica from the answer on", function* () {
  const [one, other] = yield* twoReplicas
  const { orgId } = yield* must(one.send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  const headers = { "x-org-id": orgId! }
  const call = (path: string, json: object) => must(one.send, "POST", `/v1/${path}`, { json, headers, as })
  const strict = (strictEvents: boolean) =>
    must(one.send, "PATCH", `/api/v0/orgs/${orgId}`, { json: { strictEvents }, as })
  const publishes = (data: unknown) =>
    Effect.map(
      other.send("POST", "/v1/events/publish", { json: { type: "a.b", data }, headers, as }),
      ({ status }) => status,
    )
  yield* call("event-types/create", { name: "a.b", schemas: { "1": { type: "number" } } })
  expect(yield* publishes("")).toBe(200)
  for (let n = 0; n < 5; n++) {
    yield* strict(true)
    expect([yield* publishes(""), yield* publishes(1)]).toEqual([400, 200])
    yield* call("event-types/update", { name: "a.b", schemas: { "2": { type: "string" } } })
    expect([yield* publishes(""), yield* publishes(1)]).toEqual([200, 400])
    yield* call("event-types/update", { name: "a.b", schemas: { "2": null } })
    expect([yield* publishes(""), yield* publishes(1)]).toEqual([400, 200])
    yield* call("event-types/delete", { name: "a.b" })
    expect([yield* publishes(""), yield* publishes(1)]).toEqual([400, 400])
    yield* call("event-types/create", { name: "a.b", schemas: { "1": { type: "number" } } })
    yield* strict(false)
    expect([yield* publishes(""), yield* publishes(1)]).toEqual([200, 200])
  }
})
