import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { TestClock } from "effect/testing"
import { makeWalk } from "#src/infrastructure/queue/pickDue.ts"
import { it } from "../../support/it.ts"

it.effect(
  "a row that comes with a time before the last batch is found within ten seconds, however slow a batch is",
  function* () {
    const walk = yield* makeWalk
    const reads: Array<string> = []
    // A batch each second. From the beginning it reads for two seconds, what others have left in the index.
    const batch = Effect.gen(function* () {
      const now = yield* DateTime.now
      yield* walk({ after: null, limit: 10, now }, (since) =>
        Effect.gen(function* () {
          yield* Effect.sleep(since === null ? "2 seconds" : "1 millis")
          reads.push(since === null ? "all" : "new")
          return { next: null }
        }),
      )
      yield* Effect.sleep("1 second")
    })
    yield* Effect.forkChild(Effect.forever(batch))
    yield* TestClock.adjust("1 minute")
    const between = reads.join(" ").split("all")
    assert.isAbove(between.length, 6)
    assert.isBelow(Math.max(...between.map((some) => some.split("new").length - 1)), 6)
  },
)
