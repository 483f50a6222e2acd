import { assert } from "@effect/vitest"
import { type DateTime, Deferred, Effect, Fiber } from "effect"
import { IdempotencyRepository, type KeyedOperation, KeyedOutcome } from "#src/domain/Idempotency.ts"
import { Conflict } from "#src/domain/Errors.ts"
import type { It } from "./support.ts"
import { at, awkwardTexts, failureOf, newId } from "./support.ts"

const once = <A, E, R>(
  keyed: KeyedOperation,
  operation: Effect.Effect<{ readonly response: A; readonly record: string }, E, R>,
  now: DateTime.Utc = at(0),
) => IdempotencyRepository.use((keys) => keys.once(keyed, { now, expiresAt: at(60) }, operation))

const { Found, InFlight, Ran } = KeyedOutcome
const succeed = (record: string) => Effect.succeed({ response: `response of ${record}`, record })

const newOperation = Effect.map(newId, (key): KeyedOperation => ({
  orgId: "o",
  caller: "caller",
  operation: "op",
  key,
}))

/** The contract of every IdempotencyRepository. */
export const idempotency = (it: It) => {
  /** Promise (Repeated requests) */
  it.effect(
    "idempotency: an operation runs once for each principal, operation and key, and its record does not change",
    function* () {
      for (const record of awkwardTexts) {
        const keyed = yield* newOperation
        assert.deepStrictEqual(yield* once(keyed, succeed(record)), Ran({ response: `response of ${record}` }))
        for (let i = 0; i < 2; i++) assert.deepStrictEqual(yield* once(keyed, Effect.die("run")), Found({ record }))
        for (const other of [{ caller: "other" }, { operation: "other" }, { key: `${keyed.key} ` }]) {
          assert.strictEqual((yield* once({ ...keyed, ...other }, succeed("x")))._tag, "Ran")
        }
      }
    },
  )

  it.effect("idempotency: an operation that fails or dies leaves no record and can run again", function* () {
    const keyed = yield* newOperation
    const failure = new Conflict({ error: "Taken." })
    assert.strictEqual(
      yield* failureOf(once(keyed, Effect.fail(failure))),
      JSON.stringify({ error: "Taken.", code: "conflict" }),
    )
    yield* Effect.exit(once(keyed, Effect.die("broken")))
    assert.strictEqual((yield* once(keyed, succeed("r")))._tag, "Ran")
  })

  it.effect("idempotency: an expired record has no effect", function* () {
    const keyed = yield* newOperation
    yield* once(keyed, succeed("first"))
    assert.deepStrictEqual(yield* once(keyed, succeed("second"), at(59)), Found({ record: "first" }))
    assert.strictEqual((yield* once(keyed, succeed("second"), at(60)))._tag, "Ran")
    assert.deepStrictEqual(yield* once(keyed, succeed("third"), at(1)), Found({ record: "second" }))
  })

  it.effect("idempotency: expired records are removed up to the limit, and no others", function* () {
    const { deleteExpired } = yield* IdempotencyRepository
    while ((yield* deleteExpired(at(3600), 100)) > 0);
    const keyed = [yield* newOperation, yield* newOperation, yield* newOperation]
    for (const one of keyed) yield* once(one, succeed("r"))
    assert.strictEqual(yield* deleteExpired(at(59), 100), 0)
    for (const one of keyed) assert.strictEqual((yield* once(one, succeed("r")))._tag, "Found")
    assert.deepStrictEqual(
      [yield* deleteExpired(at(60), 2), yield* deleteExpired(at(60), 2), yield* deleteExpired(at(60), 2)],
      [2, 1, 0],
    )
    for (const one of keyed) assert.strictEqual((yield* once(one, succeed("r")))._tag, "Ran")
  })

  /** Promise (Repeated requests) */
  it.effect("idempotency: of many requests at once, one runs the operation", function* () {
    const keyed = yield* newOperation
    let runs = 0
    const operation = Effect.andThen(
      Effect.sync(() => void runs++),
      Effect.andThen(Effect.yieldNow, succeed("r")),
    )
    const outcomes = yield* Effect.replicateEffect(once(keyed, operation), 8, { concurrency: "unbounded" })
    assert.strictEqual(runs, 1)
    assert.strictEqual(outcomes.filter(({ _tag }) => _tag === "Ran").length, 1)
  })

  it.effect(
    "idempotency: while an operation runs, a second request is refused or waits, and does not run it",
    function* () {
      const keyed = yield* newOperation
      const [begun, end] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const running = yield* Effect.forkChild(
        once(
          keyed,
          Deferred.succeed(begun, undefined).pipe(Effect.andThen(Deferred.await(end)), Effect.andThen(succeed("r"))),
        ),
      )
      yield* Deferred.await(begun)
      const second = yield* Effect.forkChild(once(keyed, Effect.die("run")))
      // The embedded database has one session, in which the second request waits for the first.
      const early = yield* Effect.timeoutOption(Fiber.join(second), "200 millis")
      if (early._tag === "Some") assert.deepStrictEqual(early.value, InFlight())
      yield* Deferred.succeed(end, undefined)
      assert.strictEqual((yield* Fiber.join(running))._tag, "Ran")
      if (early._tag === "None") assert.deepStrictEqual(yield* once(keyed, Effect.die("run")), Found({ record: "r" }))
    },
  )
}
