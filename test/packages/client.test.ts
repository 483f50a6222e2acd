import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { OpenApi } from "effect/http-api"
import { readFileSync } from "node:fs"
import { parseJson as parseExactly } from "#src/domain/exactJson.ts"
import { Api } from "#src/http/api/Api.ts"
import { type Document, generate } from "../../packages/client/generator.ts"
import { bind, type CallOptions, GatehouseError, type Operations } from "../../packages/client/src/runtime.ts"
import { it, layer } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

const document = OpenApi.fromApi(Api) as unknown as Document
const { javascript, types } = generate(document)
const operations = JSON.parse(/^const operations = (.*)$/m.exec(javascript)![1]!) as Operations

type Call = (args?: object, options?: CallOptions) => Promise<Record<string, string>>
type Client = Readonly<Record<string, Readonly<Record<string, Call>>>>
const clientOf = (baseUrl: string, credential?: string, more: object = {}) =>
  bind(operations, { baseUrl, credential, ...more }) as Client

it("parses JSON as the other packages do", () => {
  const of = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8")
  expect(of("packages/client/src/numberTexts.ts")).toBe(of("src/sdk/numberTexts.ts"))
})

it("has a method and types for every operation of the definition", () => {
  for (const methods of Object.values(document.paths)) {
    for (const { operationId } of Object.values(methods)) {
      const [group, name] = operationId.split(".") as [string, string]
      expect(operations[group], operationId).toHaveProperty(name)
      expect(types, operationId).toContain(`readonly ${name}: (args`)
    }
  }
})

// Seen failing: the error of the runtime has the credential in it.
it("refuses a credential that no header can have, and does not repeat it", () => {
  for (const credential of ["svc_secret\nsecret", "svc_secret\u20ac"]) {
    expect(() => clientOf("http://127.0.0.1:9", credential)).toThrow(
      /^The credential has characters that no header can have, such as a line break\.$/,
    )
  }
})

// Seen failing: the error of the runtime has the password in it.
it("refuses an address with a password, and does not repeat it", () => {
  expect(() => clientOf("https://user:s3cret@gatehouse.example", "svc_x")).toThrow(
    /^baseUrl must have no user name or password\.$/,
  )
})

interface Answer {
  readonly content?: Readonly<Record<string, { readonly example?: unknown }>>
}

/** Every success of the definition, as the service sends it: an example of each type of content, or no body. */
const successes = Object.values(document.paths).flatMap((methods) =>
  Object.values(methods).flatMap(({ operationId, parameters, responses }) =>
    Object.entries(responses as Readonly<Record<string, Answer>>).flatMap(([status, { content = {} }]) => {
      if (!status.startsWith("2")) return []
      const types = Object.entries(content)
      const args = Object.fromEntries(
        parameters.map(({ name, schema }) => [name, schema.type === "array" ? ["a", "b"] : "1"]),
      )
      const answers = types.length === 0 ? [["", { example: undefined }] as const] : types
      return answers.map(([type, { example }]) => ({ operationId, args, status: Number(status), type, example }))
    }),
  ),
)

// Seen failing: keys.authorize, docs.mcp and docs.llmsTxt said that the address is not Gatehouse's.
it.live.each(successes)(
  "returns the answer $status $type of $operationId",
  function* ({ args, example, operationId, status, type }) {
    const [group, name] = operationId.split(".") as [string, string]
    const isJson = type === "application/json"
    const isText = type.startsWith("text/plain")
    const text = isText ? String(example) : isJson ? JSON.stringify(example) : null
    let asked = ""
    const fetch = async (url: string) => {
      asked = url
      return new Response(text, { status, headers: type === "" ? {} : { "content-type": type } })
    }
    const value: unknown = yield* Effect.promise(() =>
      clientOf("http://127.0.0.1:9", "svc_x", { fetch })[group]![name]!(args),
    )
    if (isJson || isText) expect(value).toEqual(example)
    else if (type === "") expect(value).toBeUndefined()
    else expect(value).toHaveProperty("next")
    // Seen failing: permission=a%2Cb.
    for (const [name, sent] of Object.entries(args)) {
      const found = new URL(asked).searchParams.getAll(name)
      if (found.length > 0) expect(found, name).toEqual([sent].flat())
    }
  },
)

layer(TestServer.layer(guarded), { excludeTestServices: true })("gatehouse-client", (it) => {
  // Seen failing: fetch followed the redirect.
  it.effect("follows no redirect", function* () {
    const [elsewhere, redirecting] = [yield* makeReceiver(), yield* makeReceiver()]
    redirecting.behave({ status: 308, headers: { location: elsewhere.url } })
    const validated = clientOf(redirecting.url, adminToken)["keys"]!["validate"]!({ key: "svc_x" })
    const error = yield* Effect.promise(() => validated.catch((error: unknown) => error))
    expect(error).toMatchObject({
      status: 308,
      message: `The service redirects to ${elsewhere.url}, and a redirect is not followed. Use that address if you trust it.`,
    })
    expect(elsewhere.received).toEqual([])
  })

  it.effect(
    "calls operations with ids in the path, a query and a body, and with both kinds of credentials",
    function* () {
      const { url } = yield* TestServer
      yield* Effect.promise(async () => {
        const admin = clientOf(`${url}/`, adminToken)
        const { orgId } = await admin["orgs"]!["create"]!({ name: "A & Söhne/…" })
        const { key } = await admin["keys"]!["createForOrg"]!({ orgId, name: "k" })
        expect(await admin["keys"]!["validate"]!({ key })).toMatchObject({ orgId, projectId: "" })
        expect(await admin["orgs"]!["get"]!({ orgId })).toMatchObject({ name: "A & Söhne/…" })
        const listed = await admin["keys"]!["list"]!({ orgId, limit: 1 })
        expect(listed).toMatchObject({ keys: [{ name: "k" }], nextCursor: null })
        const tenant = clientOf(url, key)
        const { job_id } = await tenant["jobs"]!["create"]!({ workflow: "w" })
        expect(await tenant["jobs"]!["get"]!({ job_id })).toMatchObject({ status: "queued" })
        expect(await tenant["webhooks"]!["list"]!()).toEqual({ webhook_endpoints: [] })
      })
    },
  )

  it.effect("what is passed on keeps the text of its numbers", function* () {
    const { url } = yield* TestServer
    yield* Effect.promise(async () => {
      const admin = clientOf(url, adminToken)
      const { orgId } = await admin["orgs"]!["create"]!({ name: "numbers" })
      const { key } = await admin["keys"]!["createForOrg"]!({ orgId, name: "k" })
      const text = '{"id":9007199254740993,"in":[1.0,-0,{"tiny":1e-400}]}'
      const [tenant, exact] = [clientOf(url, key), clientOf(url, key, { parse: parseExactly })]
      const first = await exact["jobs"]!["create"]!({ workflow: "w", input: parseExactly(text) })
      const { input } = await tenant["jobs"]!["get"]!({ job_id: first["job_id"] })
      expect(input).toEqual({ id: Number("9007199254740993"), in: [1, -0, { tiny: 0 }] })
      expect(JSON.stringify(input)).toBe(text)
      const { job_id } = await tenant["jobs"]!["create"]!({ workflow: "w", input })
      const job = await exact["jobs"]!["get"]!({ job_id })
      expect(JSON.stringify({ ...(job["input"] as unknown as object) })).toBe(text)
    })
  })

  it.effect("an answer other than 2xx is an error with status, code and request id", function* () {
    const { url } = yield* TestServer
    yield* Effect.promise(async () => {
      const failure = async (call: Promise<unknown>) => call.then(() => undefined).catch((error: unknown) => error)
      const missing = await failure(clientOf(url, adminToken)["orgs"]!["get"]!({ orgId: "../keys" }))
      expect(missing).toBeInstanceOf(GatehouseError)
      expect(missing).toMatchObject({ status: 404, code: "not_found", requestId: expect.stringMatching(/^\S{36}$/) })
      const refused = await failure(clientOf(url)["jobs"]!["list"]!({}))
      expect(refused).toMatchObject({ status: 401, code: "unauthorized", message: expect.stringMatching(/key/) })
      const foreign = await failure(clientOf(`${url}/nope`)["orgs"]!["list"]!())
      expect(foreign).toMatchObject({ status: 404 })
    })
  })

  // Seen failing: a TypeError of null, a message "[object Object]", and a SyntaxError with what the proxy had said.
  it.effect("an answer that is not the service's is an error that says so, and repeats nothing of it", function* () {
    for (const [status, body] of [
      [502, "null"],
      [502, '{"error":{"code":502},"message":["s3cret"],"code":7}'],
      [404, "<html>s3cret"],
      [200, "<html>s3cret"],
      [200, ""],
      [200, '{"s3cret":'],
    ] as const) {
      const fetch = async () => new Response(body, { status, headers: { "x-request-id": "r-1" } })
      const call = clientOf("http://127.0.0.1:9", "svc_x", { fetch })["orgs"]!["list"]!()
      const error = yield* Effect.promise(() => call.catch((error: unknown) => error))
      expect(error, body).toBeInstanceOf(GatehouseError)
      const message = `The address answers with status ${status}, but not as Gatehouse does. Check baseUrl.`
      expect(error, body).toMatchObject({ status, code: "unknown", message, requestId: "r-1" })
    }
  })

  // Seen failing: the entries before the cut were all that there seemed to be.
  it.effect("lines that end in the middle of one are an error", function* () {
    const headers = { "content-type": "application/x-ndjson" }
    const fetch = async () => new Response('{"id":"1"}\n{"id":', { headers })
    const entries = clientOf("http://127.0.0.1:9", "svc_x", { fetch })["audit"]!["export"]!({ orgId: "o" })
    const read: Array<unknown> = []
    const all = async () => {
      for await (const entry of (await entries) as unknown as AsyncIterable<unknown>) read.push(entry)
    }
    const error = yield* Effect.promise(() => all().catch((error: unknown) => error))
    expect(read).toEqual([{ id: "1" }])
    expect(String(error)).toBe("Error: The response was cut off.")
  })

  it.effect("a repeated call with the same idempotency key creates one thing", function* () {
    const { url } = yield* TestServer
    yield* Effect.promise(async () => {
      const { create } = clientOf(url, adminToken)["orgs"]!
      const options = { idempotencyKey: "once-only" }
      const [one, two] = [await create!({ name: "x" }, options), await create!({ name: "x" }, options)]
      expect(two).toEqual(one)
    })
  })

  it.effect("what changes is a stream of events with their names", function* () {
    const { url } = yield* TestServer
    yield* Effect.promise(async () => {
      const admin = clientOf(url, adminToken)
      const { orgId } = await admin["orgs"]!["create"]!({ name: "watched" })
      const { key } = await admin["keys"]!["createForOrg"]!({ orgId, name: "k" })
      const tenant = clientOf(url, key)
      const stream = (await tenant["live"]!["follow"]!()) as unknown as AsyncIterable<{ event: string; data: object }>
      const { job_id } = await tenant["jobs"]!["create"]!({ workflow: "w" })
      for await (const { event, data } of stream) {
        if (event !== "job") continue
        expect(data).toMatchObject({ orgId })
        expect(JSON.stringify(data)).toContain(job_id)
        break
      }
    })
  })

  it.effect("the chat is a stream of parts", function* () {
    const { url } = yield* TestServer
    yield* Effect.promise(async () => {
      const admin = clientOf(url, adminToken)
      const { orgId } = await admin["orgs"]!["create"]!({ name: "o" })
      const { projectId } = await admin["projects"]!["create"]!({ name: "docs", orgId })
      const { key } = await admin["keys"]!["createForProject"]!({ name: "k", projectId })
      const stream = (await clientOf(url, key)["chat"]!["answer"]!({
        messages: [{ role: "user", content: "How do I rotate a key?" }],
        docsPages: { keys: "# Keys\n\nA key is rotated by a new one." },
      })) as unknown as AsyncIterable<{ readonly type: string; readonly delta?: string }>
      const parts: Array<{ readonly type: string; readonly delta?: string }> = []
      for await (const part of stream) parts.push(part)
      expect(parts[0]).toEqual({ type: "start" })
      expect(parts.at(-1)).toMatchObject({ type: "finish" })
      expect(parts.map(({ delta = "" }) => delta).join("")).toContain("A key is rotated")
    })
  })
})

it("refuses a definition whose parameter is also a field of the body", () => {
  const schema = { type: "object", properties: { id: { type: "string" } } }
  const twice: Document = {
    paths: {
      "/x/{id}": {
        post: {
          operationId: "x.y",
          parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
          requestBody: { content: { "application/json": { schema } } },
          responses: {},
        },
      },
    },
    components: { schemas: {} },
  }
  expect(() => generate(twice)).toThrow("id is a parameter and a field of the body")
})
