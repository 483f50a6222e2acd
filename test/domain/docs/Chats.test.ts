import { describe, expect } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
import { TestClock } from "effect/testing"
import { Principal } from "#src/domain/Principal.ts"
import { type AnswerPart, type ChatRequest, limits, recentTurns } from "#src/domain/docs/Chat.ts"
import { ChatRateLimits, ChatRates } from "#src/domain/docs/ChatRateLimits.ts"
import { Chats } from "#src/domain/docs/Chats.ts"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import { DocsQuestions } from "#src/domain/docs/DocsQuestions.ts"
import { DocsWakeup, StoredDocs } from "#src/domain/docs/StoredDocs.ts"
import { Documents } from "#src/domain/docs/Documents.ts"
import { UnprocessableContent } from "#src/domain/Errors.ts"
import { LanguageModel, type ModelRequest } from "#src/domain/docs/LanguageModel.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as DocsIndexes from "../../fakes/DocsIndexes.ts"
import * as fakes from "../../fakes/repositories.ts"
import { docs, docsPages } from "../../support/docs.ts"
import { it } from "../../support/it.ts"
import { messageOf } from "../../support/uiMessages.ts"
import { as } from "../support.ts"

const projectKey = Principal.ProjectKey({ keyId: "key", orgId: "org", projectId: "project" })
const ask = (text: string): ChatRequest => ({ messages: [{ role: "user", content: text }] })

const documents = Layer.succeed(Documents, {
  archive: ({ url }) =>
    url.includes("missing")
      ? Effect.fail(new UnprocessableContent({ error: `docsZipUrl: ${url} is missing.` }))
      : Effect.succeed({ version: url, pages: docs }),
  currentArchive: ({ url }) => Effect.succeed({ version: url, pages: docs }),
  skill: ({ url }) => Effect.succeed({ name: url.split("/").at(-1)!, description: "a skill", markdown: `read ${url}` }),
})

const storedDocs = Layer.merge(DocsQuestions.layer, StoredDocs.layer).pipe(
  Layer.provide(ChatRateLimits.layer),
  Layer.provide([AuditLog.layer, DocsWakeup.layer]),
  Layer.provide(fakes.layer),
  Layer.provide(crypto.layer),
)

/** Chats over fakes, with a model only when `model` is set. */
const chats = (
  model?: (request: ModelRequest) => Stream.Stream<AnswerPart>,
  rates = { projectKey: 1_000, address: 2 },
) =>
  Chats.layer.pipe(
    Layer.provide([
      documents,
      crypto.layer,
      DocsIndexes.layer,
      Layer.succeed(LanguageModel, { answer: model }),
      ChatRateLimits.layer.pipe(Layer.provide(Layer.succeed(ChatRates, rates))),
      storedDocs,
    ]),
  )

const answer = (request: ChatRequest, address = "192.0.2.1") =>
  Chats.use((chats) => chats.answer(request, address)).pipe(Effect.flatMap(Stream.runCollect))
const textOf = (request: ChatRequest) =>
  Effect.flatMap(answer(request), (parts) => Effect.promise(() => messageOf(parts))).pipe(
    Effect.map(({ text }) => text),
  )

/** A model that records its requests. */
const recordingModel = () => {
  const asked: Array<ModelRequest> = []
  const model = (request: ModelRequest) => {
    asked.push(request)
    return Stream.fromIterable<AnswerPart>([{ type: "start" }, { type: "finish" }])
  }
  return { asked, model }
}

describe("who may chat", () => {
  const guarded = [
    [projectKey, undefined],
    [Principal.OrgKey({ keyId: "key", orgId: "org" }), "Forbidden"],
    [Principal.Administrator(), "Forbidden"],
    [Principal.Anonymous(), "Unauthorized"],
  ] as const
  for (const open of [false, true]) {
    it.effect(`${open ? "open" : "guarded"} mode`, () =>
      Effect.gen(function* () {
        for (const [caller, refused] of guarded) {
          const expected = open && caller._tag === "Anonymous" ? undefined : refused
          const result = yield* answer(ask("key")).pipe(
            as(caller, open),
            Effect.match({ onSuccess: () => undefined, onFailure: ({ _tag }) => _tag }),
          )
          expect(result, caller._tag).toBe(expected)
        }
      }).pipe(Effect.provide(chats())),
    )
  }
})

describe("the rate limit of chats", () => {
  const anonymous = as(Principal.Anonymous(), true)
  const refused = (address: string) => Effect.flip(answer(ask("key"), address)).pipe(anonymous)

  it.effect("counts per client address, answers 429 with the time to wait, and does not limit other addresses", () =>
    Effect.gen(function* () {
      yield* answer(ask("key"), "a").pipe(anonymous)
      yield* answer(ask("key"), "a").pipe(anonymous)
      expect(yield* refused("a")).toMatchObject({ _tag: "TooManyRequests", retryAfterSeconds: 30 })
      yield* answer(ask("key"), "b").pipe(anonymous)
      yield* TestClock.adjust("10 seconds")
      expect(yield* refused("a")).toMatchObject({ retryAfterSeconds: 20 })
      yield* TestClock.adjust("20 seconds")
      yield* answer(ask("key"), "a").pipe(anonymous)
      expect(yield* refused("a")).toMatchObject({ retryAfterSeconds: 30 })
      // Seen failing: each address of a /64 network, which is one client's, had its own limit.
      for (const last of ["1", "ffff:2"]) yield* answer(ask("key"), `2001:db8::${last}`).pipe(anonymous)
      expect(yield* refused("2001:db8::3")).toMatchObject({ _tag: "TooManyRequests" })
    }).pipe(Effect.provide(chats())),
  )

  it.effect("counts per key from any address, including invalid requests", () =>
    Effect.gen(function* () {
      for (const address of ["a", "b", "c"]) yield* answer(ask("key"), address).pipe(as(projectKey))
      yield* Effect.flip(answer(ask(" "), "d")).pipe(as(projectKey))
      expect(yield* Effect.flip(answer(ask("key"), "e")).pipe(as(projectKey))).toMatchObject({
        _tag: "TooManyRequests",
      })
      yield* answer(ask("key"), "a").pipe(as(Principal.ProjectKey({ ...projectKey, keyId: "other" })))
    }).pipe(Effect.provide(chats(undefined, { projectKey: 4, address: 1 }))),
  )
})

describe("the answer without a model", () => {
  const text = (request: ChatRequest) => textOf(request).pipe(as(projectKey))

  it.effect("is the best passages, verbatim, with their slugs, and always the same", () =>
    Effect.gen(function* () {
      const request = { ...ask("How do I rotate a key?"), docsPages }
      const said = yield* text(request)
      expect(said).toMatch(/^No language model is configured here\./)
      expect(said).toContain("**API keys › Rotating a key** (`guides/keys`)\n\n> Create a second key, put it into use")
      expect(said.match(/^\*\*/gm)!.length).toBeLessThanOrEqual(3)
      const quoted = said.split("\n").filter((line) => line.startsWith("> "))
      const all = Object.values(docsPages).join("\n")
      for (const line of quoted) expect(all).toContain(line.slice(2))
      expect(yield* text(request)).toBe(said)
      expect(yield* text({ ...ask("How do I rotate a key?"), docsZipUrl: "https://example.com/docs.zip" })).toBe(said)
    }).pipe(Effect.provide(chats())),
  )

  it.effect("invents nothing when no passage fits", () =>
    Effect.gen(function* () {
      expect(yield* text(ask("How do I rotate a key?"))).toMatch(/^No language model .* no documentation was given/)
      const noMatch = /^No language model .* nothing in the documentation matches the question\.\n\nSearched for /
      const nothing = yield* text({ ...ask("xyzzyplugh?"), docsPages })
      expect(nothing).toMatch(noMatch)
      expect(nothing).toMatch(/Searched for `xyzzyplugh`\. No page has `xyzzyplugh`\.$/)
      // Seen failing: it searched for `cplusplus`.
      expect(yield* text({ ...ask("C++ or C#?"), docsPages })).toMatch(/Searched for `c\+\+`, `c#`\./)
      expect(yield* text({ ...ask("key"), docsPages: { empty: "" } })).toMatch(noMatch)
    }).pipe(Effect.provide(chats())),
  )

  it.effect("prefers the current page, and a page of docsPages to the zip's page with the same slug", () =>
    Effect.gen(function* () {
      const own = { "guides/keys": "# Keys\n\nRotating a key is different here." }
      const said = yield* text({ ...ask("rotating a key"), docsPages: own, docsZipUrl: "https://example.com/docs.zip" })
      expect(said).toContain("different here")
      expect(said).not.toContain("Create a second key")
      // The second form seen failing: the site is not at the root of its host.
      for (const page of [
        { pageSlug: "/webhooks/secrets" },
        { pageSlug: "/v2/webhooks/secrets/", docsUrl: "https://e.com/v2" },
      ]) {
        const reading = yield* text({ ...ask("What does this page say?"), docsPages, ...page })
        expect(reading).toMatch(/word for word:\n\n\*\*Signing secrets[^\n]*\(`webhooks\/secrets`\)/)
      }
    }).pipe(Effect.provide(chats())),
  )

  it.effect("answers the last question, in either form of message", () =>
    Effect.gen(function* () {
      const before = [
        { role: "user" as const, content: "webhook secrets" },
        { role: "assistant" as const, parts: [] },
      ]
      const parts = [{ type: "step-start" }, { type: "text", text: "rotate a key" }, { type: "file", url: "x" }]
      const said = yield* text({ messages: [...before, { role: "user", parts }], docsPages })
      expect(said).toContain("Create a second key")
    }).pipe(Effect.provide(chats())),
  )
})

describe("the request to a model", () => {
  it.effect("has instructions, tools for the pages and skills, and a limit of eight steps", function* () {
    const { asked, model } = recordingModel()
    const run = (request: ChatRequest) => answer(request).pipe(as(projectKey), Effect.provide(chats(model)))
    yield* run({
      ...ask("hello"),
      docsPages,
      pageSlug: "guides/keys",
      skillUrls: ["https://e.com/deploy", "https://e.com/deploy"],
    })
    yield* run(ask("hello"))
    const [full, bare] = asked
    expect(full!.tools.map(({ name }) => name)).toEqual(["search_docs", "read_page", "read_skill"])
    expect(full!.steps).toBe(8)
    expect(full!.instructions).toContain("cite the page that says it")
    expect(full!.instructions).toContain('"guides/keys"')
    expect(full!.instructions.match(/- deploy: a skill/g)).toEqual(["- deploy: a skill"])
    expect(full!.turns).toEqual([{ role: "user", text: "hello" }])
    expect(bare!.tools).toEqual([])
    expect(bare!.instructions).toContain("No documentation was given")
    const [search, page, skill] = full!.tools
    expect(yield* search!.run("rotate a key")).toContain("slug: guides/keys")
    expect(yield* search!.run("xyzzyplugh")).toBe("Nothing fits. Try other words.")
    expect(yield* page!.run("webhooks/secrets")).toBe(docsPages["webhooks/secrets"])
    expect(yield* skill!.run("deploy")).toBe("read https://e.com/deploy")
    expect(yield* skill!.run("constructor")).toContain("no skill")
  })

  it.effect("gives tools a limit of characters, however often they are called", function* () {
    const { asked, model } = recordingModel()
    const huge = "word ".repeat(100_000)
    yield* answer({ ...ask("hello"), docsPages: { huge } }).pipe(as(projectKey), Effect.provide(chats(model)))
    const read = asked[0]!.tools.find(({ name }) => name === "read_page")!
    const lengths = (yield* Effect.replicateEffect(read.run("huge"), 20)).map(({ length }) => length)
    expect(Math.max(...lengths)).toBeLessThan(24_100)
    expect(lengths.reduce((a, b) => a + b)).toBeLessThan(125_000)
    expect(yield* read.run("huge")).toBe("There is no room for more. Answer from what you have.")
  })

  it.effect("gives a model a limit of calls of its tools", function* () {
    const { asked, model } = recordingModel()
    yield* answer({ ...ask("hello"), docsPages }).pipe(as(projectKey), Effect.provide(chats(model)))
    const search = asked[0]!.tools.find(({ name }) => name === "search_docs")!
    const found = yield* Effect.replicateEffect(search.run("xyzzyplugh"), 51, { concurrency: 51 })
    expect(found.slice(0, 50)).not.toContain("There is no room for more. Answer from what you have.")
    expect(found.slice(50)).toEqual(["There is no room for more. Answer from what you have."])
  })

  it.effect("a defect during the answer becomes an error part, and the stream ends normally", function* () {
    const broken = () => Stream.concat(Stream.make<[AnswerPart]>({ type: "start" }), Stream.die(new Error("internals")))
    const parts = yield* answer(ask("hello")).pipe(as(projectKey), Effect.provide(chats(broken)))
    expect(parts).toEqual([{ type: "start" }, { type: "error", errorText: "Something went wrong here." }])
  })

  it.effect("a reference that cannot be fetched fails before the answer begins", function* () {
    const { asked, model } = recordingModel()
    const request = { ...ask("hello"), docsZipUrl: "https://example.com/missing.zip" }
    const error = yield* Effect.flip(answer(request)).pipe(as(projectKey), Effect.provide(chats(model)))
    expect(error).toMatchObject({ _tag: "UnprocessableContent", code: "unprocessable" })
    expect(asked).toEqual([])
  })
})

describe("the messages", () => {
  it.effect("end with one from the user that has text and is not too long, or get a 400 with its index", () =>
    Effect.gen(function* () {
      const refusal = (...messages: ChatRequest["messages"]) =>
        Effect.flip(answer({ messages })).pipe(
          as(projectKey),
          Effect.map(({ error }) => error),
        )
      const user = { role: "user" as const, content: "hello" }
      expect(yield* refusal(user, { role: "assistant", content: "hi" })).toBe(
        "messages.1 must be from the user, as the last message.",
      )
      expect(yield* refusal(user, user, { role: "system", content: "x" })).toMatch(/^messages\.2 must be from the user/)
      expect(yield* refusal({ role: "user", content: " \n" })).toBe("messages.0 must have text.")
      expect(yield* refusal(user, { role: "user", parts: [{ type: "file" }] })).toBe("messages.1 must have text.")
      const long = { role: "user" as const, content: "x".repeat(limits.question + 1) }
      expect(yield* refusal(long)).toBe("messages.0 must have at most 32,000 characters.")
      yield* answer({ messages: [{ role: "user", content: "x".repeat(limits.question) }] }).pipe(as(projectKey))
    }).pipe(Effect.provide(chats())),
  )

  it("are dropped oldest first, and begin with a message of the user", () => {
    const turn = (role: "user" | "assistant" | "system", n: number) => ({ role, content: String(n).padEnd(100, ".") })
    const conversation = [
      turn("system", 0),
      turn("user", 1),
      turn("assistant", 2),
      turn("user", 3),
      turn("assistant", 4),
      turn("user", 5),
    ]
    const kept = (characters: number) =>
      recentTurns(conversation, characters).map(({ text }) => Number.parseInt(text, 10))
    expect(kept(1_000)).toEqual([1, 2, 3, 4, 5])
    expect(kept(500)).toEqual([1, 2, 3, 4, 5])
    expect(kept(499)).toEqual([3, 4, 5])
    expect(kept(300)).toEqual([3, 4, 5])
    expect(kept(299)).toEqual([5])
    expect(kept(1)).toEqual([5])
    expect(recentTurns([{ role: "user", parts: [] }, turn("user", 1)], 1_000).length).toBe(1)
    const thousands = Array.from({ length: 1_000 }, () => turn("user", 1))
    expect(recentTurns(thousands, limits.conversation).length).toBe(480)
  })
})
