import { describe, expect } from "@effect/vitest"
import { DateTime, Deferred, Effect, Fiber, Layer } from "effect"
import { ChatRateLimits } from "#src/domain/docs/ChatRateLimits.ts"
import type { NewQuestion, Thumb } from "#src/domain/docs/DocsQuestion.ts"
import { DocsQuestions, DocsQuestionRepository } from "#src/domain/docs/DocsQuestions.ts"
import { ProjectDocsRepository } from "#src/domain/docs/ProjectDocsRepository.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import { Principal } from "#src/domain/Principal.ts"
import { it } from "../../support/it.ts"
import { as } from "../support.ts"

const question: NewQuestion = {
  orgId: "org",
  projectId: "project",
  id: "question",
  askedAt: DateTime.makeUnsafe(0),
  question: "How do I rotate a key?",
  topic: "rotate",
  found: true,
  thumb: null,
}
const reader = as(Principal.ProjectKey({ keyId: "key", orgId: "org", projectId: "project" }))
const rate = DocsQuestions.use(({ rate }) => reader(rate({ messageId: "question", thumb: "up" }, "a")))

/** The service over a repository whose writes run an effect; `written` gets the feedback of each question. */
const questions = (insert: Effect.Effect<void, Unavailable>, written: Array<Thumb | null>) =>
  DocsQuestions.layer.pipe(
    Layer.provide(
      Layer.mock(DocsQuestionRepository, {
        insert: (all) => Effect.tap(insert, () => Effect.sync(() => written.push(...all.map(({ thumb }) => thumb)))),
        setThumb: () => Effect.succeed(false),
      }),
    ),
    Layer.provide(Layer.mock(ProjectDocsRepository, {})),
    Layer.provide(Layer.mock(ChatRateLimits, { take: () => Effect.void })),
  )

describe("questions that wait to be written", () => {
  // Seen failing: there was no such question while its write was under way.
  it.effect("can be rated while they are being written", function* () {
    const [begun, go] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    const insert = Effect.andThen(Deferred.succeed(begun, undefined), Deferred.await(go))
    const written: Array<Thumb | null> = []
    yield* Effect.gen(function* () {
      const { flush, keep } = yield* DocsQuestions
      keep(question)
      const flushing = yield* Effect.forkChild(flush)
      yield* Deferred.await(begun)
      yield* rate
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(flushing)
      yield* flush
      yield* flush
    }).pipe(Effect.provide(questions(insert, written)))
    expect(written).toEqual([null, "up"])
  })

  it.effect("wait for the next write when one fails", function* () {
    let fails = true
    const insert = Effect.suspend(() => (fails ? Effect.fail(new Unavailable({ error: "down" })) : Effect.void))
    const written: Array<Thumb | null> = []
    yield* Effect.gen(function* () {
      const { flush, keep } = yield* DocsQuestions
      keep(question)
      yield* Effect.flip(flush)
      yield* rate
      fails = false
      yield* flush
      yield* flush
    }).pipe(Effect.provide(questions(insert, written)))
    expect(written).toEqual(["up"])
  })
})
