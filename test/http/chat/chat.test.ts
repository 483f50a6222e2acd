import { describe, expect } from "@effect/vitest"
import { DefaultChatTransport, readUIMessageStream } from "ai"
import { Arbitrary, Effect, Schema, Stream } from "effect"
import { FetchHttpClient } from "effect/http"
import { request } from "node:http"
import { ChatRequest } from "#src/domain/docs/Chat.ts"
import * as Gatehouse from "#src/sdk/client.ts"
import { docsPages } from "../../support/docs.ts"
import { it, layer } from "../../support/it.ts"
import { modelServer } from "../../support/modelServer.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { chunksOf, messageOf } from "../../support/uiMessages.ts"
import type { Send, WireAnswer } from "../../support/wire.ts"
import { zip } from "../../support/zip.ts"
import { faultOfError, must } from "../operations.ts"

const path = "/api/svc/chat"
const MiB = 1024 * 1024
const ask = (content: string, more: object = {}) => ({ messages: [{ role: "user", content }], ...more })

const expectError = (answer: WireAnswer, status: number, context = "") => {
  expect(answer.status, `${context} ${answer.text.slice(0, 200)}`).toBe(status)
  expect(answer.json).toMatchObject({ error: expect.stringMatching(/^\S.*\S\.$/s), code: expect.any(String) })
  return (answer.json as { error: string }).error
}

/** The answer to a chat that must succeed, as the AI SDK reads it. */
const chat = Effect.fnUntraced(function* (send: Send, json: object, as?: string) {
  const answer = yield* send("POST", path, { json, as })
  expect(answer.status, answer.text.slice(0, 200)).toBe(200)
  return { answer, ...(yield* Effect.promise(async () => messageOf(await chunksOf(answer.text)))) }
})

layer(TestServer.layer(), { excludeTestServices: true })("chat in open mode, without a model", (it) => {
  it.effect("answers with the AI SDK's stream, part by part, to the last", function* () {
    const { send } = yield* TestServer
    const { answer, text, errors } = yield* chat(send, ask("How do I rotate a key?", { docsPages }))
    expect(answer.headers).toMatchObject({
      "content-type": "text/event-stream",
      "x-vercel-ai-ui-message-stream": "v1",
      // Seen failing without the second: proxies that compress hold back what is short.
      "cache-control": "no-store, no-transform",
      "x-accel-buffering": "no",
    })
    expect(answer.headers["access-control-allow-origin"]).toBeUndefined()
    expect(answer.text).toMatch(/^data: \{"type":"start"\}\n\n/)
    expect(answer.text).toMatch(/\n\ndata: \[DONE\]\n\n$/)
    expect(text).toContain("> Create a second key")
    expect(errors).toEqual([])
  })

  it.effect("works with the unchanged transport of the AI SDK, and with our client", function* () {
    const { url } = yield* TestServer
    const transport = new DefaultChatTransport({ api: url + path, body: { docsPages, pageSlug: "guides/keys" } })
    const stream = yield* Effect.promise(() =>
      transport.sendMessages({
        chatId: "c",
        messageId: undefined,
        trigger: "submit-message",
        abortSignal: undefined,
        messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "How do I rotate a key?" }] }],
      }),
    )
    let text = ""
    yield* Effect.promise(async () => {
      for await (const { role, parts } of readUIMessageStream({ stream })) {
        expect(role).toBe("assistant")
        text = parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("")
      }
    })
    expect(text).toContain("> Create a second key")
    const client = yield* Gatehouse.make({ baseUrl: url }).pipe(Effect.provide(FetchHttpClient.layer))
    const request = ChatRequest.make({ messages: [{ role: "user", content: "How do I rotate a key?" }], docsPages })
    const { body, headers } = yield* client.chat.answer({ payload: request })
    expect(headers["x-vercel-ai-ui-message-stream"]).toBe("v1")
    const events = yield* Stream.runCollect(body)
    expect(events.at(-1)).toMatchObject({ data: "[DONE]" })
    expect(events.map(({ data }) => data).join("")).toContain("Create a second key")
  })

  it.effect("fetches a zip and skills over HTTP, and names those that it cannot fetch", function* () {
    const { send } = yield* TestServer
    const host = yield* makeReceiver()
    host.behave(({ path }) =>
      path === "/docs.zip"
        ? { status: 200, body: zip([{ path: "docs/keys.md", content: "# Keys\n\nRotating takes two keys." }]) }
        : path === "/skill.md"
          ? { status: 200, body: "---\nname: deploy\ndescription: how\n---\n" }
          : { status: 404 },
    )
    const docsZipUrl = `${host.url}/docs.zip`
    const { text } = yield* chat(
      send,
      ask("rotating", { docsZipUrl, skillUrls: [`${host.url}/skill.md`], pageSlug: "/keys" }),
    )
    expect(text).toContain("**Keys** (`docs/keys`)\n\n> Rotating takes two keys.")
    const missing = `${host.url}/missing`
    for (const json of [{ docsZipUrl: missing }, { docsZipUrl, skillUrls: [missing] }]) {
      const answer = yield* send("POST", path, { json: ask("rotating", json) })
      expect(expectError(answer, 422)).toContain(missing)
      expect(answer.json).toMatchObject({ code: "unprocessable" })
    }
  })

  it.effect("an invalid request is a 400 that names the field, or the message by its index", function* () {
    const { send } = yield* TestServer
    const user = { role: "user", content: "hello" }
    const url = "https://example.com/"
    const cases: ReadonlyArray<readonly [object, RegExp]> = [
      [{}, /^messages is required/],
      [{ messages: "hello" }, /^messages must be an array/],
      [{ messages: [] }, /^messages must be at least 1 message/],
      [{ messages: Array.from({ length: 1_001 }, () => user) }, /^messages must be at most 1,000 messages/],
      [{ messages: [user, null] }, /^messages\.1 must be a JSON object/],
      [{ messages: [user, {}] }, /^messages\.1\.role is required/],
      [
        { messages: [user, { role: "root", content: "x" }] },
        /^messages\.1\.role must be one of user, assistant, system/,
      ],
      [{ messages: [user, { role: "user" }] }, /^messages\.1 must have parts or content/],
      [{ messages: [user, { role: "user", content: 5 }] }, /^messages\.1\.content must be a string/],
      [{ messages: [user, { role: "user", parts: {} }] }, /^messages\.1\.parts must be an array/],
      [{ messages: [user, { role: "user", parts: [{}] }] }, /^messages\.1\.parts\.0\.type is required/],
      [
        { messages: [user, { role: "user", parts: [{ type: "text", text: 1 }] }] },
        /^messages\.1\.parts\.0 must have a string/,
      ],
      [{ messages: [user, { role: "assistant", content: "x" }] }, /^messages\.1 must be from the user/],
      [{ messages: [{ role: "user", parts: [] }] }, /^messages\.0 must have text/],
      [ask("x", { docsPages: [] }), /^docsPages must be a JSON object/],
      [ask("x", { docsPages: { a: 1 } }), /^docsPages\.a must be a string/],
      [
        ask("x", { docsPages: Object.fromEntries(Array.from({ length: 2_001 }, (_, n) => [n, ""])) }),
        /^docsPages must be at most 2,000 pages/,
      ],
      [ask("x", { docsZipUrl: "docs.zip" }), /^docsZipUrl must be an absolute/],
      [ask("x", { docsZipUrl: "file:///etc/passwd" }), /^docsZipUrl must be an absolute/],
      [ask("x", { docsZipUrl: "https://user:password@example.com" }), /^docsZipUrl must have no user name/],
      [ask("x", { docsZipUrl: "https://example.com:0/" }), /^docsZipUrl must have a port from 1/],
      [ask("x", { docsZipUrl: null }), /^docsZipUrl must be a string/],
      [ask("x", { skillUrls: url }), /^skillUrls must be an array/],
      [ask("x", { skillUrls: [url, "ftp://a"] }), /^skillUrls\.1 must be an absolute/],
      [ask("x", { skillUrls: Array.from({ length: 21 }, () => url) }), /^skillUrls must be at most 20 URLs/],
      [ask("x", { pageSlug: 5 }), /^pageSlug must be a string/],
      [ask("x", { pageSlug: "x".repeat(513) }), /^pageSlug must be at most 512 characters/],
    ]
    for (const [json, sentence] of cases) {
      const answer = yield* send("POST", path, { json })
      expect(expectError(answer, 400, JSON.stringify(json).slice(0, 100))).toMatch(sentence)
      expect(faultOfError(answer)).toBeUndefined()
    }
    const text = yield* send("POST", path, { body: "{}", headers: { "content-type": "text/plain" } })
    expectError(text, 415)
    expectError(yield* send("POST", path, { body: "{", headers: { "content-type": "application/json" } }), 400)
  })

  it.effect(
    "a body may have 8 MiB and not one byte more; bodies of other operations have their own limit",
    function* () {
      const { send } = yield* TestServer
      const sized = (size: number) => {
        const empty = JSON.stringify(ask("hello", { docsPages: { a: "" } })).length
        return JSON.stringify(ask("hello", { docsPages: { a: "x ".repeat(size).slice(0, size - empty) } }))
      }
      const post = (to: string, body: string, headers = {}) =>
        send("POST", to, { body, headers: { "content-type": "application/json", ...headers } })
      expect((yield* post(path, sized(8 * MiB))).status).toBe(200)
      expectError(yield* post(path, sized(8 * MiB + 1)), 413)
      expectError(yield* post(path, sized(8 * MiB + 1), { "transfer-encoding": "chunked" }), 413)
      expectError(yield* post("/api/v0/projects", sized(MiB + 1)), 413)
    },
  )

  it.effect("names of the prototype, unusual text and other odd values never cause a 5xx", function* () {
    const { send, logs } = yield* TestServer
    const strange = [
      "__proto__",
      "constructor",
      "",
      "\0",
      "\ud800",
      "../../etc",
      "a".repeat(500),
      "\u202e",
      "# \r\n---",
    ]
    for (const text of strange) {
      const body = JSON.stringify({
        ...ask(`x${text}`, {
          pageSlug: text.replaceAll("\0", "").toWellFormed(),
          unknown: text,
          id: text,
          trigger: text,
        }),
        docsPages: Object.fromEntries([
          [text, text],
          ["toString", `# ${text}\n\nx${text}`],
        ]),
      })
      const answer = yield* send("POST", path, { body, headers: { "content-type": "application/json" } })
      expect(answer.status, body.slice(0, 100)).toBe(200)
      yield* Effect.promise(() => chunksOf(answer.text))
    }
    const { text } = yield* chat(
      send,
      JSON.parse('{"messages":[{"role":"user","content":"zebra"}],"docsPages":{"__proto__":"zebra"}}') as object,
    )
    expect(text).toContain("(`__proto__`)\n\n> zebra")
    const deep = `{"messages":[{"role":"user","parts":[{"type":"x","deep":${"[".repeat(50_000)}${"]".repeat(50_000)}}]}]}`
    expectError(yield* send("POST", path, { body: deep, headers: { "content-type": "application/json" } }), 400)
    expect(logs()).not.toContain("A request failed")
  })

  it.effect("any JSON in any field gets a documented answer", function* () {
    const { send, advance } = yield* TestServer
    const json = Arbitrary.schema(Schema.Json)
    const text = Arbitrary.schema(Schema.String)
    const fields = ["messages", "docsPages", "docsZipUrl", "skillUrls", "pageSlug"]
    const requests = Arbitrary.all({ question: text, slug: text, page: text, value: json, text })
    const statuses = new Set<number>()
    const result = yield* Arbitrary.checkEffect(
      requests,
      Effect.fnUntraced(function* ({ question, slug, page, value, text }) {
        const body = ask(`x${question}`, { docsPages: { [slug]: page, x: `# x\n\n${page}` } })
        const wrong = fields.flatMap((field) =>
          [value, text, [text], { [text]: text }].map((to) => ({ ...body, [field]: to })),
        )
        const messages = [
          value,
          { role: "user", content: value },
          { role: "user", parts: [value, { type: text, text }] },
        ]
        for (const json of [body, ...wrong, ...messages.map((message) => ({ messages: [message] }))]) {
          yield* advance("1 second")
          const answer = yield* send("POST", path, { json })
          statuses.add(answer.status)
          const fine =
            answer.status === 200 || ([400, 422].includes(answer.status) && faultOfError(answer) === undefined)
          if (!fine) return yield* Effect.fail(`${JSON.stringify(json)}: ${answer.status} ${answer.text}`)
        }
        return true
      }),
      { runs: 40 },
    )
    expect(Arbitrary.formatCheckFailure(result)).toBeUndefined()
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400]))
  })

  it.effect("an address may chat sixty times a minute, then gets 429 with Retry-After", function* () {
    const { send, advance } = yield* TestServer
    yield* advance("2 minutes")
    const statuses: Array<number> = []
    for (let n = 0; n < 61; n++) statuses.push((yield* send("POST", path, { json: ask("hello") })).status)
    expect(statuses.slice(0, 60)).toEqual(Array.from({ length: 60 }, () => 200))
    const refused = yield* send("POST", path, { json: ask("hello") })
    expectError(refused, 429)
    expect(refused.headers["retry-after"]).toBe("1")
    expect(faultOfError(refused)).toBeUndefined()
    yield* advance("1 second")
    expect((yield* send("POST", path, { json: ask("hello") })).status).toBe(200)
  })
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("chat in guarded mode", (it) => {
  it.effect(
    "accepts a project key in either header and no other credential, and calls no private network",
    function* () {
      const { send } = yield* TestServer
      const create = (to: string, json: object) => must(send, "POST", to, { json, as: adminToken })
      const { projectId, orgId } = yield* create("/api/v0/projects", { name: "docs" })
      const { key } = yield* create("/api/v0/keys", { name: "site", projectId })
      const { key: orgKey } = yield* create(`/api/v0/orgs/${orgId}/keys`, { name: "org" })
      const json = ask("hello")
      expect((yield* send("POST", path, { json, as: key })).status).toBe(200)
      expect((yield* send("POST", path, { json, headers: { "x-api-key": key } })).status).toBe(200)
      expectError(yield* send("POST", path, { json, as: orgKey }), 403)
      expectError(yield* send("POST", path, { json, as: adminToken }), 403)
      expectError(yield* send("POST", path, { json }), 401)
      expectError(yield* send("POST", path, { json, as: `${key}x` }), 401)
      // A body without a length is not read before the credential is checked.
      const headers = { "content-type": "application/json" }
      const chunked = { ...headers, "transfer-encoding": "chunked" }
      expectError(yield* send("POST", path, { body: "x".repeat(200_000), headers: chunked }), 401)
      expectError(yield* send("POST", path, { body: "x".repeat(9 * MiB), headers }), 413)

      const host = yield* makeReceiver()
      const refused = yield* send("POST", path, { json: ask("hello", { docsZipUrl: `${host.url}/docs.zip` }), as: key })
      expect(expectError(refused, 422)).toContain(host.url)
      expect(host.connections().accepted).toBe(0)
    },
  )
})

describe("chat with a model", () => {
  const world = Effect.gen(function* () {
    const model = yield* modelServer
    return { model, environment: { AI_BASE_URL: model.url, AI_MODEL: "some-model", AI_API_KEY: "sk-hidden-key" } }
  })

  it.live("streams from the first token, calls tools, and reports failures in words", function* () {
    const { model, environment } = yield* world
    yield* Effect.gen(function* () {
      const { send, logs, spans } = yield* TestServer
      model.behave(
        { call: [{ name: "search_docs", arguments: '{"query":"rotate a key"}' }] },
        { say: ["Make a second key.", ' [[guides/keys "Create a sec', 'ond key"]] Or ask Bob Jones.'] },
      )
      const { text, parts } = yield* chat(send, ask("How do I rotate a key?", { docsPages }))
      expect(text).toBe("Make a second key. [1](/guides/keys) Or ask Bob Jones. *(not verified)*")
      expect(parts.find(({ type }) => type === "source-document")).toMatchObject({ filename: "guides/keys" })
      expect(parts.find(({ type }) => type === "tool-search_docs")).toMatchObject({ state: "output-available" })

      model.behave({ breakAfter: "Half" })
      const broken = yield* chat(send, ask("hello"))
      expect([broken.text, broken.errors.length]).toEqual(["Half", 1])
      expect(broken.answer.text).toMatch(/"type":"error".*\n\ndata: \[DONE\]\n\n$/s)
      model.behave({ status: 401 })
      expect((yield* chat(send, ask("hello"))).errors).toEqual(["The language model failed; try again."])
      expect(logs() + spans()).not.toContain("sk-hidden-key")
    }).pipe(Effect.provide(TestServer.layer(environment)))
  })

  it.live(
    "the first token is sent while the model still works, and the call ends when the client leaves",
    function* () {
      const { model, environment } = yield* world
      yield* Effect.gen(function* () {
        const { url } = yield* TestServer
        model.behave({ stall: "The first token" })
        const first = yield* Effect.callback<string>((resume) => {
          let text = ""
          const outgoing = request(
            url + path,
            { method: "POST", headers: { "content-type": "application/json" } },
            (incoming) => {
              incoming.on("error", () => {})
              incoming.on("data", (chunk: Buffer) => {
                text += chunk.toString()
                if (!text.includes("The first token")) return
                outgoing.destroy()
                resume(Effect.succeed(text))
              })
            },
          )
          outgoing.on("error", () => {})
          outgoing.end(JSON.stringify(ask("hello")))
        })
        expect(first).toContain('"delta":"The first token"')
        yield* model.allClosed
      }).pipe(Effect.provide(TestServer.layer(environment)))
    },
  )
})

it("the example of the OpenAPI document is accepted", () => {
  const { examples } = ChatRequest.ast.annotations as { examples: ReadonlyArray<unknown> }
  expect(Schema.decodeUnknownSync(ChatRequest)(examples[0])).toEqual(examples[0])
})
