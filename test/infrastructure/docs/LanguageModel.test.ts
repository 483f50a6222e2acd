import { describe, expect } from "@effect/vitest"
import { Effect, Fiber, Logger, Redacted, Stream } from "effect"
import type { AnswerPart } from "#src/domain/docs/Chat.ts"
import { chatTools } from "#src/domain/docs/chatTools.ts"
import { LanguageModel, type ModelRequest } from "#src/domain/docs/LanguageModel.ts"
import * as Model from "#src/infrastructure/docs/HttpLanguageModel.ts"
import { searchable } from "../../fakes/DocsIndexes.ts"
import { docs } from "../../support/docs.ts"
import { it } from "../../support/it.ts"
import { modelServer } from "../../support/modelServer.ts"
import { messageOf } from "../../support/uiMessages.ts"
import { until } from "../../support/wait.ts"

/**
 * Promise (Nothing secret in logs): No log line has words of a reader, of a model or of documentation, also when a
 * stream breaks or the database refuses a row.
 */

const secret = "sk-secret-of-the-tests"

const request: ModelRequest = {
  instructions: "Be brief.",
  turns: [
    { role: "user", text: "first" },
    { role: "assistant", text: "second" },
    { role: "user", text: "third" },
  ],
  tools: [],
  steps: 8,
}

/** A model server and a client for it; `ask` returns the parts of the answer and the log. */
const world = Effect.fnUntraced(function* (options: Partial<Model.LanguageModelOptions> = {}) {
  const server = yield* modelServer
  const logged: Array<string> = []
  const settings = { baseUrl: server.url, model: "some-model", apiKey: Redacted.make(secret), retries: 0, ...options }
  const answer = yield* LanguageModel.use(({ answer }) => Effect.succeed(answer!)).pipe(
    Effect.provide(Model.layer(settings)),
  )
  const log = Logger.layer([Logger.map(Logger.formatJson, (line) => void logged.push(line))])
  const parts = (asked: Partial<ModelRequest> = {}) =>
    Stream.runCollect(answer({ ...request, ...asked })).pipe(Effect.provide(log))
  return { server, answer, parts, logs: () => logged.join("\n") }
})

const types = (parts: ReadonlyArray<AnswerPart>) => parts.map(({ type }) => type)
const tools = Effect.sync(() =>
  chatTools({
    docs: searchable(docs),
    pageSlug: undefined,
    skills: [{ name: "deploy", description: "How to deploy", markdown: "Deploy carefully." }],
  }),
)

describe("a model that answers", () => {
  it.live("gets an OpenAI-compatible request, and its text is streamed piece by piece", function* () {
    const { server, parts } = yield* world()
    server.behave({ say: ["A key", " is rotated."] })
    const answer = yield* parts()
    expect(types(answer)).toEqual([
      "start",
      "start-step",
      "text-start",
      "text-delta",
      "text-delta",
      "text-end",
      "finish-step",
      "finish",
    ])
    expect((yield* Effect.promise(() => messageOf(answer))).text).toBe("A key is rotated.")
    const [call] = server.calls
    expect(call!.path).toBe("/v1/chat/completions")
    expect(call!.headers.authorization).toBe(`Bearer ${secret}`)
    expect(call!.body).toMatchObject({ model: "some-model", stream: true })
    expect(call!.body.tools).toBeUndefined()
    expect(call!.body.messages.map(({ role, content }) => [role, content])).toEqual([
      ["system", "Be brief."],
      ["user", "first"],
      ["assistant", "second"],
      ["user", "third"],
    ])
  })

  it.live("needs no key where the server requires none", function* () {
    const { server, parts } = yield* world({ apiKey: undefined })
    yield* parts()
    expect(server.calls[0]!.headers.authorization).toBeUndefined()
  })

  it.live("the first token is streamed before the last one arrives", function* () {
    const { server, answer } = yield* world()
    server.behave({ stall: "The first token" })
    const first = yield* answer(request).pipe(
      Stream.filter(({ type }) => type === "text-delta"),
      Stream.take(1),
      Stream.runCollect,
    )
    expect(first[0]).toMatchObject({ delta: "The first token" })
    // The reader stopped, which ended the call.
    yield* server.allClosed
  })

  it.live("calls tools, reads their results, and answers", function* () {
    const { server, parts } = yield* world()
    server.behave(
      {
        call: [
          { name: "search_docs", arguments: '{"query":"rotate a key"}' },
          { name: "read_skill", arguments: '{"name":"deploy"}' },
        ],
      },
      { call: [{ name: "read_page", arguments: '{"slug":"guides/keys"}' }] },
      { say: ["See `guides/keys`."] },
    )
    const { text, parts: seen } = yield* Effect.flatMap(parts({ tools: yield* tools }), (answer) =>
      Effect.promise(() => messageOf(answer)),
    )
    expect(text).toBe("See `guides/keys`.")
    expect(seen.map(({ type }) => type).filter((type) => type.startsWith("tool-"))).toEqual([
      "tool-search_docs",
      "tool-read_skill",
      "tool-read_page",
    ])
    expect(server.calls.map(({ body }) => body.tools!.map((tool) => tool.function.name))).toEqual(
      Array.from({ length: 3 }, () => ["search_docs", "read_page", "read_skill"]),
    )
    const results = server.calls[2]!.body.messages.filter(({ role }) => role === "tool").map(({ content }) =>
      String(content),
    )
    expect(results[0]).toContain("slug: guides/keys\nheading: API keys › Rotating a key")
    expect(results[1]).toContain("Deploy carefully.")
    expect(results[2]).toContain("## Deleting a key")
  })

  it.live("continues after wrong calls: unknown tools, invalid arguments, missing pages", function* () {
    const { server, parts } = yield* world()
    server.behave(
      { call: [{ name: "rm_rf", arguments: "{}" }] },
      { call: [{ name: "search_docs", arguments: "{no json" }] },
      { call: [{ name: "search_docs", arguments: '{"query":5}' }] },
      { call: [{ name: "read_page", arguments: '{"slug":"../../etc/passwd"}' }] },
      { call: [{ name: "read_skill", arguments: '{"name":"__proto__"}' }] },
      { say: ["I do not know."] },
    )
    const answer = yield* parts({ tools: yield* tools })
    expect(answer.filter(({ type }) => type === "error")).toEqual([])
    expect((yield* Effect.promise(() => messageOf(answer))).text).toBe("I do not know.")
    const [last] = server.calls.slice(-1)
    expect(JSON.stringify(last!.body.messages)).toContain("There is no page of this slug")
    expect(JSON.stringify(last!.body.messages)).toContain("There is no skill of this name")
  })

  it.live("may reason for longer than it may be silent, and its reasoning is not streamed", function* () {
    const { server, parts } = yield* world({ maxSilenceMillis: 2_500 })
    server.behave({ think: 60, say: ["Done."] })
    const answer = yield* parts()
    expect((yield* Effect.promise(() => messageOf(answer))).text).toBe("Done.")
    expect(JSON.stringify(answer)).not.toMatch(/hmm|reasoning|error/)
  })

  it.live("has at most eight steps", function* () {
    const { server, parts } = yield* world()
    server.behave({ call: [{ name: "search_docs", arguments: '{"query":"key"}' }] })
    const answer = yield* parts({ tools: yield* tools })
    expect(server.calls.length).toBe(8)
    expect(types(answer).at(-1)).toBe("finish")
    // The last step may not call a tool. If it does, the reader gets no error.
    expect(types(answer)).not.toContain("error")
  })
})

describe("a model that fails", () => {
  for (const status of [400, 401, 403, 404, 429, 500, 503]) {
    it.live(`status ${status} becomes an error part without internals, and the log has the cause`, function* () {
      const { server, parts, logs } = yield* world()
      server.behave({ status, body: JSON.stringify({ error: { message: `internals ${secret}` } }) })
      const answer = yield* parts()
      expect(answer.filter(({ type }) => type === "error")).toEqual([
        { type: "error", errorText: "The language model failed; try again." },
      ])
      expect(JSON.stringify(answer)).not.toMatch(/internals|secret/)
      expect(logs()).toContain(`status ${status}`)
      expect(logs()).not.toMatch(/internals|secret/)
      expect(server.calls.length).toBe(1)
    })
  }

  for (const behaviour of [{ breakAfter: "Half of" }, { errorAfter: "Half of" }, { garbageAfter: "Half of" }]) {
    it.live(`${Object.keys(behaviour)[0]}: the text so far stays, and an error part follows`, function* () {
      const { server, parts, logs } = yield* world()
      server.behave(behaviour)
      const answer = yield* parts()
      const { text } = yield* Effect.promise(() => messageOf(answer))
      expect(text).toBe("Half of")
      expect(answer.filter(({ type }) => type === "error").map(({ errorText }) => errorText)).toEqual([
        "The language model failed; try again.",
      ])
      expect(logs()).toContain("The language model failed")
      // Seen failing: "AI_JSONParseError: JSON parsing failed: Text: {no json".
      expect(logs()).not.toMatch(/Half of|no json|internals|first|third|Be brief/)
    })
  }

  it.live("an unreachable server, or one that does not speak chat completions, becomes an error part", function* () {
    const gone = yield* world({ baseUrl: "http://127.0.0.1:1/v1" })
    expect(types(yield* gone.parts())).toContain("error")
    const { server, parts } = yield* world()
    for (const body of ["", "<html></html>", "null", "[]", "data: [DONE]"]) {
      server.behave({ status: 200, body })
      expect(Array.isArray(yield* parts()), body).toBe(true)
    }
  })

  it.live("a model that is silent too long is aborted, and the reader gets an error", function* () {
    const { server, parts } = yield* world({ maxSilenceMillis: 100 })
    for (const behaviour of [{ stall: "Wait for" }, { mute: true }] as const) {
      server.behave(behaviour)
      const answer = yield* parts()
      expect(answer.filter(({ type }) => type === "error").length, JSON.stringify(answer)).toBe(1)
      expect(types(answer)).not.toContain("abort")
      yield* server.allClosed
    }
  })

  it.live("an answer that takes too long in all is aborted too", function* () {
    const { server, parts } = yield* world({ totalMillis: 100 })
    server.behave({ stall: "Wait for" })
    expect((yield* parts()).filter(({ type }) => type === "error").map(({ errorText }) => errorText)).toEqual([
      "The language model did not answer in time; try again.",
    ])
    yield* server.allClosed
  })

  it.live("a call that was refused temporarily is retried", function* () {
    const { server, parts } = yield* world({ retries: 1 })
    server.behave({ status: 500 }, { say: ["At last"] })
    const answer = yield* parts()
    expect((yield* Effect.promise(() => messageOf(answer))).text).toBe("At last")
  })

  it.live("the call ends when the client leaves", function* () {
    const { server, answer } = yield* world()
    server.behave({ stall: "Hello" })
    const fiber = yield* Effect.forkChild(Stream.runDrain(answer(request)))
    yield* until(
      "the call of the model",
      Effect.sync(() => server.calls.length),
      (calls) => calls > 0,
    )
    yield* Fiber.interrupt(fiber)
    yield* server.allClosed
  })
})
