import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { it } from "../../support/it.ts"
import { modelServer } from "../../support/modelServer.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { zip } from "../../support/zip.ts"
import { must } from "../operations.ts"

/** Promise (Nothing secret in logs) */

/** Words that only the reader, the model and the documentation use. */
const words = { reader: "zanzibar", model: "mombasa", page: "kilimanjaro" }
const admin = { as: adminToken }

/** A project with stored documentation that keeps questions, on a server with a model. */
const world = Effect.gen(function* () {
  const model = yield* modelServer
  const host = yield* makeReceiver()
  host.behave({ status: 200, body: zip([{ path: "a.md", content: `# ${words.page}\n\nThe ${words.page} is high.` }]) })
  const environment = { ...guarded, ALLOW_PRIVATE_NETWORKS: "true", AI_BASE_URL: model.url, AI_MODEL: "m" }
  const server = Context.get(yield* Layer.build(TestServer.layer(environment)), TestServer)
  const { send } = server
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p" }, ...admin })
  const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, ...admin })
  const path = `/api/v0/projects/${projectId}/docs`
  const set = send("PUT", path, { json: { docsZipUrl: `${host.url}/docs.zip`, keepQuestions: true }, ...admin })
  return { ...server, model, host, key: key!, path, set }
})

it.live("no log line has words of readers, models or documentation, whatever fails", function* () {
  const { key, logs, model, path, send, set, sql } = yield* world
  yield* set
  yield* until("the documentation", must(send, "GET", path, admin), ({ state }) => state === "stored")
  const question = `How high is the ${words.page} in ${words.reader}?`
  const chat = (more: object = {}) =>
    send("POST", "/api/svc/chat", {
      json: { messages: [{ role: "user", content: question }], ...more },
      as: key,
    })
  const text = `${words.model} is high.`
  const tool = { name: words.model, arguments: `{"${words.model}": ` }
  for (const behaviour of [
    { say: [text] },
    { call: [tool] },
    { breakAfter: text },
    { errorAfter: text },
    { garbageAfter: text },
    { status: 400, body: `{"error":{"message":"${words.model}"}}` },
  ]) {
    model.behave(behaviour, { say: [text] })
    yield* chat()
  }
  model.behave({ say: [text] })

  const broken = `{"messages":[{"role":"user","content":"${words.reader}`
  const headers = { "content-type": "application/json" }
  yield* send("POST", "/api/svc/chat", { body: broken, headers, as: key })
  yield* chat({ messages: [{ role: words.reader, content: words.reader }] })
  yield* chat({ docsPages: { [words.page]: 1 }, pageSlug: words.reader })
  yield* send("POST", "/api/svc/chat/feedback", { json: { messageId: words.reader, thumb: words.reader }, as: key })
  const rpc = (name: string, given: unknown) =>
    send("POST", `${path}/mcp`, {
      json: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given } },
      as: key,
    })
  yield* rpc("search_docs", { query: question })
  yield* rpc(words.reader, { query: question })
  yield* rpc("read_page", { slug: words.reader })
  yield* send("POST", `${path}/mcp`, { body: broken, headers, as: key })
  yield* send("GET", `${path}/questions?cursor=${words.reader}`, admin)

  // PostgreSQL shows the row that a constraint refuses.
  yield* sql`ALTER TABLE docs_questions ADD CHECK (length(question) < 1) NOT VALID`
  yield* sql`ALTER TABLE docs_pages ADD CHECK (length(markdown) < 1) NOT VALID`
  yield* chat()
  yield* until("the failed write", Effect.sync(logs), (log) => log.includes("Questions are not kept yet"))
  yield* sql`UPDATE project_docs SET digest = 'another'`
  yield* set
  yield* until("the failed fetch", Effect.sync(logs), (log) => log.includes("Documentation is not stored"))
  yield* sql`ALTER TABLE docs_questions RENAME TO gone`
  yield* send("GET", `${path}/questions`, admin)

  const lines = logs()
    .split("\n")
    .filter((line) => Object.values(words).some((word) => line.includes(word)))
  expect(lines).toEqual([])
})
