import { assert, describe } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { TestClock } from "effect/testing"
import { json, rateLimited } from "#src/infrastructure/telemetry/Telemetry.ts"
import { it } from "../../support/it.ts"

/** Collects the lines that a logger writes while an effect runs. */
const linesOf = Effect.fnUntraced(function* (logging: Effect.Effect<void>, logger = json) {
  const lines: Array<Record<string, unknown>> = []
  const collecting = Logger.make<unknown, void>((line) => {
    lines.push(JSON.parse(logger.log(line)) as Record<string, unknown>)
  })
  yield* Effect.provide(logging, Logger.layer([rateLimited(collecting)]))
  return lines
})

describe("JSON log lines", () => {
  it.effect("have the time, the level and the message, and no empty fields", function* () {
    assert.deepStrictEqual(yield* linesOf(Effect.logInfo("Up")), [
      { timestamp: "1970-01-01T00:00:00.000Z", level: "INFO", message: "Up" },
    ])
  })

  it.effect("have their annotations and the cause", function* () {
    const [line] = yield* linesOf(
      Effect.logError("A request failed", new Error("boom")).pipe(
        Effect.annotateLogs({ requestId: "mine", orgId: "acme", status: null }),
      ),
    )
    assert.deepInclude(line, { level: "ERROR", requestId: "mine", orgId: "acme", status: null })
    assert.include(JSON.stringify(line), "boom")
  })
})

describe("a repeated warning", () => {
  const every = (seconds: number, times: number, warning: Effect.Effect<void>) =>
    Effect.replicateEffect(Effect.andThen(warning, TestClock.adjust(`${seconds} seconds`)), times, { discard: true })
  const messages = (logging: Effect.Effect<void>) =>
    Effect.map(linesOf(logging), (lines) => lines.map(({ message }) => message))

  it.effect("is logged once a minute, with the number of lines left out", function* () {
    assert.deepStrictEqual(yield* messages(every(1, 121, Effect.logWarning("The database is away"))), [
      "The database is away",
      "The database is away (and 59 more times since the last line)",
      "The database is away (and 59 more times since the last line)",
    ])
  })

  it.effect("does not affect other warnings, those about one request or delivery, or errors", function* () {
    const others = Effect.logWarning("Two").pipe(
      Effect.andThen(Effect.annotateLogs(Effect.logWarning("Slow"), { requestId: "mine" })),
      Effect.andThen(Effect.logError("Fault")),
    )
    const logging = Effect.andThen(Effect.logWarning("One"), every(1, 2, others))
    assert.deepStrictEqual(yield* messages(logging), ["One", "Two", "Slow", "Fault", "Slow", "Fault"])
  })

  it.effect("is logged unchanged after a quiet minute", function* () {
    assert.deepStrictEqual(yield* messages(every(61, 2, Effect.logWarning("Away"))), ["Away", "Away"])
  })
})
