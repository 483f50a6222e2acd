import { describe, expect } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { Unavailable } from "#src/domain/Errors.ts"
import { makeThread } from "#src/infrastructure/docs/ThreadedIndexes.ts"
import { it } from "../../support/it.ts"

const limits = { maxBytes: 16 * 1024 * 1024, maxIndexBytes: 8 * 1024 * 1024, isBackground: false }
const pages = [{ slug: "keys", markdown: "# Keys\n\nTo rotate a key, create a second one." }]

describe("the thread of indexes", () => {
  // Seen failing: the log had nothing, and the answer says only that it can be tried again.
  it.live("logs where a task fails, without its words, and continues", function* () {
    const lines: Array<string> = []
    const logger = Logger.make(({ message }) => void lines.push(String(message)))
    const search = { op: "search", options: { limit: 5 } } as const
    yield* Effect.gen(function* () {
      const thread = yield* makeThread(limits, () => {})
      yield* thread.addPages(0, pages)
      yield* thread.ask(0, { op: "index", pages: 1, maxBytes: Infinity })
      const broken = { ...search, question: { text: "marzipan" } as unknown as string }
      expect(yield* Effect.flip(thread.ask(0, broken))).toBeInstanceOf(Unavailable)
      expect(yield* thread.ask(0, { ...search, question: "rotate a key" })).toBeDefined()
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([logger])))
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(/A task of docs\/IndexThread failed,TypeError\n {4}at /)
    expect(lines[0]).not.toContain("marzipan")
  })
})
