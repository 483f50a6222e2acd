import { expect } from "@effect/vitest"
import { Effect, Schema, type Scope } from "effect"
import { HttpApi } from "effect/http-api"
import { parseJson } from "#src/domain/exactJson.ts"
import { Api } from "#src/http/api/Api.ts"
import { type Shape, shapeOf } from "#src/domain/jsonShape.ts"
import { it, layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { embedded, onPostgres, TestServer } from "../../support/server.ts"
import { makeTenant, type Tenant } from "../tenants.ts"

const text =
  '{"id":9007199254740993,"long":123456789.123456789012345,"zero":-0,"tiny":1e-400,"one":1.0,"power":1E5,"in":[1.50,{"n":-0.0}]}'
const numbers = parseJson(text)

/** The fields of a body that take any JSON. */
const freeFields = (shape: Shape, at = ""): ReadonlyArray<string> => {
  if (shape === "any") return at === "" ? [] : [at]
  if (shape === undefined) return []
  if ("item" in shape) return freeFields(shape.item, `${at}[]`)
  return [...shape.fields].flatMap(([name, field]) => freeFields(field, at === "" ? name : `${at}.${name}`))
}

/** Ids, and lists of them or of things with them. */
type Answer = Readonly<Record<string, string & ReadonlyArray<string>>>

/** Sends a request; the answer must be a success, and have each of the texts. */
const send = (tenant: Tenant, path: string, json: object, ...texts: ReadonlyArray<string>) =>
  Effect.map(tenant.ask(path, json), (answer) => {
    expect(answer.status, `${path}: ${answer.text}`).toBe(200)
    for (const one of texts) expect(answer.text, path).toContain(one)
    return answer.json as Answer
  })

const platform = Effect.fnUntraced(function* (method: string, path: string, json?: object, ...texts: Array<string>) {
  const answer = yield* (yield* TestServer).send(method, path, { json })
  expect(answer.status, `${path}: ${answer.text}`).toBe(200)
  for (const one of texts) expect(answer.text, path).toContain(one)
  return answer.json as Answer
})

const metadata = `"metadata":${text}`
const keyHasText = Effect.fnUntraced(function* ({ orgId }: Tenant, { id, key }: Record<string, unknown>) {
  yield* platform("GET", `/api/v0/orgs/${orgId}/keys/${String(id)}`, undefined, metadata)
  yield* platform("GET", `/api/v0/orgs/${orgId}/keys`, undefined, metadata)
  if (key !== undefined) yield* platform("POST", "/api/v0/keys/validate", { key, details: true }, metadata)
})

const endpointHasText = (tenant: Tenant, id: string) =>
  Effect.andThen(
    send(tenant, "webhooks/get", { id }, metadata, '"filter":{"data.id":9007199254740993}'),
    send(tenant, "webhooks/list", {}),
  )

const jobHasText = (tenant: Tenant, job_id: string, field: string) =>
  Effect.andThen(
    send(tenant, "jobs/get", { job_id }, `"${field}":${text}`),
    send(tenant, "jobs/list", {}, `"${field}":${text}`),
  )
const claimed = Effect.fnUntraced(function* (tenant: Tenant, workflow: string, ...texts: Array<string>) {
  yield* send(tenant, "jobs/create", { workflow, input: numbers })
  const { jobs } = yield* send(tenant, "jobs/claim", { workflow }, ...texts)
  return jobs![0] as unknown as { readonly job_id: string; readonly attempt: number }
})
/** Does something that makes an event; its receiver, and the log, must have the text. */
const sent = Effect.fnUntraced(function* <E, R>(tenant: Tenant, make: Effect.Effect<unknown, E, R>, field: string) {
  const receiver = yield* makeReceiver()
  const id = yield* tenant.endpoint(receiver.url)
  yield* make
  yield* receiver.arrived(1)
  expect(receiver.received[0]!.body.toString()).toContain(`"${field}":${text}`)
  const [delivery] = yield* tenant.deliveries({ webhook_endpoint_id: id })
  yield* tenant.until(delivery!.delivery_id, ({ state }) => state === "delivered")
  yield* send(tenant, "webhooks/deliveries/retry", { delivery_id: delivery!.delivery_id })
  yield* receiver.arrived(2)
  expect(receiver.received[1]!.body.toString()).toContain(`"${field}":${text}`)
  yield* send(tenant, "webhooks/delete", { id })
})

const rules = { type: "object", properties: { id: { const: parseJson("9007199254740993") } } }

/** What each field that takes any JSON must keep, by its operation. */
const fields: Readonly<Record<string, (tenant: Tenant) => Effect.Effect<unknown, unknown, TestServer | Scope.Scope>>> =
  {
    "keys.createForProject metadata": Effect.fnUntraced(function* (tenant) {
      const { projectId } = yield* platform("POST", "/api/v0/projects", { name: "p", orgId: tenant.orgId })
      const made = yield* platform("POST", "/api/v0/keys", { name: "k", projectId, metadata: numbers })
      yield* keyHasText(tenant, made)
    }),
    "keys.createForOrg metadata": Effect.fnUntraced(function* (tenant) {
      yield* keyHasText(
        tenant,
        yield* platform("POST", `/api/v0/orgs/${tenant.orgId}/keys`, { name: "k", metadata: numbers }),
      )
    }),
    "keys.importKeys keys[].metadata": Effect.fnUntraced(function* (tenant) {
      const keys = [{ hash: "ab".repeat(32), algorithm: "sha256", name: "k", metadata: numbers }]
      const { imported } = yield* platform("POST", `/api/v0/orgs/${tenant.orgId}/keys/import`, { keys })
      yield* keyHasText(tenant, imported![0] as unknown as Answer)
    }),
    "keys.update metadata": (tenant) =>
      Effect.andThen(
        platform("PATCH", `/api/v0/orgs/${tenant.orgId}/keys/${tenant.keyId}`, { metadata: numbers }, metadata),
        keyHasText(tenant, { id: tenant.keyId, key: tenant.key }),
      ),
    "keys.rotate metadata": Effect.fnUntraced(function* (tenant) {
      const { id } = yield* platform("POST", `/api/v0/orgs/${tenant.orgId}/keys`, { name: "k" })
      const made = yield* platform("POST", `/api/v0/orgs/${tenant.orgId}/keys/${id}/rotate`, { metadata: numbers })
      yield* keyHasText(tenant, made)
    }),
    "webhooks.create metadata": Effect.fnUntraced(function* (tenant) {
      const filter = parseJson('{"data.id":9007199254740993}')
      const id = yield* tenant.endpoint("https://example.com", { metadata: numbers, filter, active: false })
      yield* endpointHasText(tenant, id)
    }),
    "webhooks.create filter": Effect.fnUntraced(function* (tenant) {
      const receiver = yield* makeReceiver()
      const all = '{"data.id":9007199254740993,"data.n":{"gt":0.1,"lte":1.00},"data.zero":0,"data.tiny":{"gt":0}}'
      const id = yield* tenant.endpoint(receiver.url, { filter: parseJson(all) })
      for (const [other, n] of [
        [9007199254740992, "1"],
        [9007199254740993n, "0.10"],
        [9007199254740993n, "1.0"],
      ]) {
        const data = parseJson(`{"id":${String(other)},"n":${String(n)},"zero":-0,"tiny":1e-400}`)
        yield* send(tenant, "events/publish", { type: "a.b", data })
      }
      yield* receiver.arrived(1)
      expect(receiver.received.map(({ body }) => body.toString())).toEqual([expect.stringContaining('"n":1.0,')])
      yield* send(tenant, "webhooks/delete", { id })
    }),
    "webhooks.update metadata": Effect.fnUntraced(function* (tenant) {
      const id = yield* tenant.endpoint("https://example.com", { active: false })
      const filter = parseJson('{"data.id":9007199254740993}')
      yield* send(tenant, "webhooks/update", { id, metadata: numbers, filter })
      yield* endpointHasText(tenant, id)
    }),
    "webhooks.update filter": () => Effect.void,
    "webhooks.test data": Effect.fnUntraced(function* (tenant) {
      const receiver = yield* makeReceiver()
      const id = yield* tenant.endpoint(receiver.url)
      const bodyOf = (fields: object) =>
        Effect.map(send(tenant, "webhooks/test", { id, ...fields }), () => receiver.received.at(-1)!.body.toString())
      expect(yield* bodyOf({ type: "a.b", data: numbers })).toContain(`"data":${text}`)
      expect(yield* bodyOf({ type: "a.b", data: parseJson("1.0") })).toContain(`"data":1.0}`)
      expect(yield* bodyOf({ type: "job.completed", data: numbers })).toContain(`"result":${text}`)
      expect(yield* bodyOf({ type: "a.b", data: null })).toContain(`"data":null}`)
      yield* send(tenant, "webhooks/delete", { id })
    }),
    "events.publish data": (tenant) =>
      sent(tenant, send(tenant, "events/publish", { type: "a.b", data: numbers }), "data"),
    "events.publishBatch events[].data": (tenant) =>
      sent(tenant, send(tenant, "events/publish-batch", { events: [{ type: "a.b", data: numbers }] }), "data"),
    "eventTypes.create schemas": Effect.fnUntraced(function* (tenant) {
      const schema = '{"type":"object","properties":{"id":{"const":9007199254740993}}}'
      const type = { name: "exact.schema", schemas: { 1: rules }, example: numbers }
      yield* send(tenant, "event-types/create", type)
      yield* send(tenant, "event-types/get", { name: "exact.schema" }, `"schemas":{"1":${schema}}`, `"example":${text}`)
      yield* send(tenant, "event-types/list", {}, `"example":${text}`)
      const wrong = yield* tenant.ask("event-types/update", { name: "exact.schema", example: { id: 9007199254740992 } })
      expect(wrong.text).toContain("example.id must be 9007199254740993")
    }),
    "eventTypes.create example": Effect.fnUntraced(function* (tenant) {
      const receiver = yield* makeReceiver()
      const id = yield* tenant.endpoint(receiver.url)
      yield* send(tenant, "event-types/create", { name: "exact.example", example: numbers })
      yield* send(tenant, "webhooks/test", { id, type: "exact.example" })
      expect(receiver.received[0]!.body.toString()).toContain(`"data":${text}`)
      yield* send(tenant, "webhooks/delete", { id })
    }),
    "eventTypes.update schemas": () => Effect.void,
    "eventTypes.update example": Effect.fnUntraced(function* (tenant) {
      yield* send(tenant, "event-types/create", { name: "exact.update" })
      yield* send(tenant, "event-types/update", { name: "exact.update", schemas: { 1: rules }, example: numbers })
      yield* send(
        tenant,
        "event-types/get",
        { name: "exact.update" },
        `"example":${text}`,
        '{"const":9007199254740993}',
      )
    }),
    "jobs.create input": Effect.fnUntraced(function* (tenant) {
      const { job_id } = yield* claimed(tenant, "create", `"input":${text}`)
      yield* jobHasText(tenant, job_id, "input")
    }),
    "jobs.createBatch jobs[].input": Effect.fnUntraced(function* (tenant) {
      const { job_ids } = yield* send(tenant, "jobs/create-batch", { jobs: [{ workflow: "w", input: numbers }] })
      yield* jobHasText(tenant, job_ids![0]!, "input")
    }),
    "jobs.step result": Effect.fnUntraced(function* (tenant) {
      const { attempt, job_id } = yield* claimed(tenant, "step")
      yield* send(tenant, "jobs/step", { job_id, attempt, name: "s", result: numbers })
      yield* send(tenant, "jobs/get", { job_id }, `"result":${text}`)
    }),
    "jobs.complete result": Effect.fnUntraced(function* (tenant) {
      const { job_id } = yield* claimed(tenant, "complete")
      yield* sent(tenant, send(tenant, "jobs/complete", { job_id, result: numbers }), "result")
      yield* jobHasText(tenant, job_id, "result")
    }),
    "jobs.completeBatch jobs[].result": Effect.fnUntraced(function* (tenant) {
      const { job_id } = yield* claimed(tenant, "complete-batch")
      yield* sent(tenant, send(tenant, "jobs/complete-batch", { jobs: [{ job_id, result: numbers }] }), "result")
      yield* jobHasText(tenant, job_id, "result")
    }),
    "jobs.fail mapped_stack": Effect.fnUntraced(function* (tenant) {
      const { job_id } = yield* claimed(tenant, "fail")
      yield* sent(tenant, send(tenant, "jobs/fail", { job_id, error: "e", mapped_stack: numbers }), "mapped_stack")
      yield* jobHasText(tenant, job_id, "mapped_stack")
    }),
    "jobs.retry input": Effect.fnUntraced(function* (tenant) {
      const { job_id } = yield* send(tenant, "jobs/create", { workflow: "retry" })
      yield* send(tenant, "jobs/fail", { job_id, error: "e" })
      yield* send(tenant, "jobs/retry", { job_id, input: numbers })
      yield* send(tenant, "jobs/claim", { workflow: "retry" }, `"input":${text}`)
    }),
    "schedules.create input": Effect.fnUntraced(function* (tenant) {
      const schedule = { workflow: "schedule", cron: "0 0 1 1 *", input: numbers }
      const { schedule_id } = yield* send(tenant, "schedules/create", schedule)
      yield* send(tenant, "schedules/get", { schedule_id }, `"input":${text}`)
      yield* send(tenant, "schedules/list", {}, `"input":${text}`)
      yield* send(tenant, "schedules/run", { schedule_id })
      yield* send(tenant, "jobs/claim", { workflow: "schedule" }, `"input":${text}`)
    }),
    "schedules.update input": Effect.fnUntraced(function* (tenant) {
      const { schedule_id } = yield* send(tenant, "schedules/create", { workflow: "w", cron: "0 0 1 1 *" })
      yield* send(tenant, "schedules/update", { schedule_id, input: numbers })
      yield* send(tenant, "schedules/get", { schedule_id }, `"input":${text}`)
    }),
  }

/** Their numbers are read, and never given back. */
const notKept = ["chat.", "docs."]

it("every field that takes any JSON is tested here", () => {
  const all: Array<string> = []
  HttpApi.reflect(Api, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group }) => {
      const schemas = [...endpoint.payload.values()].flatMap((payload) => payload.schemas)
      const free = schemas.length === 0 ? [] : freeFields(shapeOf(Schema.Union(schemas).ast))
      all.push(...free.map((field) => `${group.identifier}.${endpoint.identifier} ${field}`))
    },
  })
  expect(all.filter((one) => notKept.every((start) => !one.startsWith(start)))).toEqual(Object.keys(fields))
})

const servers = {
  "the embedded database": TestServer.layer(embedded, { endlessSleeps: true }),
  PostgreSQL: TestServer.layer(onPostgres(), { endlessSleeps: true }),
}
for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`numbers on ${database}`, (it) => {
    for (const [field, keeps] of Object.entries(fields)) {
      it.effect(`${field}: what was sent is what is sent`, () => Effect.flatMap(makeTenant(), keeps))
    }

    it.effect("a number of a field that takes a number may have any text; one beyond 1e308 is a 400", function* () {
      const tenant = yield* makeTenant()
      const headers = { "content-type": "application/json" }
      const ask = (body: string) => tenant.ask("jobs/create", undefined, { body, headers })
      const made = yield* ask('{"workflow":"w","priority":1.0,"max_attempts":2e0,"input":1.0}')
      expect(made.status, made.text).toBe(200)
      for (const input of ["1e309", "[-1e400]", '{"a":1e999}']) {
        const refused = yield* ask(`{"workflow":"w","input":${input}}`)
        expect(refused.status, refused.text).toBe(400)
        expect(refused.text).toContain("input must be JSON")
      }
    })
  })
}
