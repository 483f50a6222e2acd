import { assert, describe } from "@effect/vitest"
import { Effect, Layer, Schema } from "effect"
import { TestClock } from "effect/testing"
import { Conflict, IdempotencyKeyReused, Unavailable } from "#src/domain/Errors.ts"
import { Idempotency, IdempotencyRepository, type KeyedOperation, KeyedOutcome } from "#src/domain/Idempotency.ts"
import * as Cipher from "../fakes/Cipher.ts"
import * as crypto from "../fakes/crypto.ts"
import * as fake from "../fakes/Idempotency.ts"
import { it } from "../support/it.ts"
import { outcomeOf } from "./support.ts"

const service = (repository: typeof fake.layer = fake.layer) =>
  Idempotency.layer.pipe(Layer.provideMerge(repository), Layer.provide([Cipher.layer, crypto.layer]))

const keyed: KeyedOperation = { orgId: "", caller: "caller", operation: "keys.createForOrg", key: "once" }
const request = 'POST /api/v0/orgs/1/keys\n{"name":"a"}'
const response = { status: 200, body: '{"key":"svc_secret \\u0000 😀"}' }
const once = <E, R>(
  operation: Effect.Effect<typeof response, E, R>,
  changes: Partial<KeyedOperation & { request: string }> = {},
) =>
  Idempotency.use((idempotency) => {
    const { request: sent = request, ...own } = changes
    return idempotency.once({ ...keyed, ...own }, sent, operation)
  })
const encode = Schema.encodeUnknownSync(Schema.Union([Conflict, IdempotencyKeyReused]))

describe("an operation under an idempotency key", () => {
  it.effect("runs once, and returns the same response for a day, byte for byte", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* once(Effect.succeed(response)), { ...response, replayed: false })
      yield* TestClock.adjust("86399999 millis")
      assert.deepStrictEqual(yield* once(Effect.die("run")), { ...response, replayed: true })
      yield* TestClock.adjust("1 millis")
      const other = { status: 200, body: "{}" }
      assert.deepStrictEqual(yield* once(Effect.succeed(other)), { ...other, replayed: false })
    }).pipe(Effect.provide(service())),
  )

  it.effect("belongs to one principal and one operation: the same key of another is another key", () =>
    Effect.gen(function* () {
      yield* once(Effect.succeed(response))
      for (const change of [{ caller: "another" }, { operation: "orgs.create" }, { key: "Once" }]) {
        assert.isFalse((yield* once(Effect.succeed(response), change)).replayed)
      }
    }).pipe(Effect.provide(service())),
  )

  it.effect("is for one request: another request with the key is refused and changes nothing", () =>
    Effect.gen(function* () {
      yield* once(Effect.succeed(response))
      for (const other of [request.replace("orgs/1", "orgs/2"), request.replace('"a"', '"b"'), `${request} `]) {
        const failure = yield* Effect.flip(once(Effect.die("run"), { request: other }))
        assert.deepStrictEqual(encode(failure), {
          error: "The Idempotency-Key was used for another request: use a new key.",
          code: "idempotency_key_reused",
        })
      }
      assert.isTrue((yield* once(Effect.die("run"))).replayed)
    }).pipe(Effect.provide(service())),
  )

  it.effect("can run again after a failure, also with another request", () =>
    Effect.gen(function* () {
      const taken = Effect.fail(new Conflict({ error: "Taken." }))
      assert.strictEqual(yield* outcomeOf(once(taken)), "Conflict")
      assert.isFalse((yield* once(Effect.succeed(response), { request: "another" })).replayed)
    }).pipe(Effect.provide(service())),
  )

  it.effect("is a conflict while it runs", () =>
    Effect.gen(function* () {
      const inside = once(Effect.die("run"))
      const failure = yield* Effect.flip(once(inside))
      assert.deepStrictEqual(encode(failure), {
        error: "A request with this Idempotency-Key is in flight; try again.",
        code: "conflict",
      })
    }).pipe(Effect.provide(service())),
  )

  it.effect("leaves a record that only its principal, operation and key can decrypt", () => {
    const records: Array<string> = []
    const forgetful = Layer.succeed(IdempotencyRepository, {
      once: (_keyed, _times, operation) =>
        records.length > 0
          ? Effect.succeed(KeyedOutcome.Found({ record: records[0]! }))
          : Effect.map(operation, ({ response, record }) => {
              records.push(record)
              return KeyedOutcome.Ran({ response })
            }),
      deleteExpired: () => Effect.succeed(0),
    })
    return Effect.gen(function* () {
      yield* once(Effect.succeed(response))
      assert.isTrue((yield* once(Effect.die("run"))).replayed)
      for (const change of [{ caller: "another" }, { operation: "orgs.create" }, { key: "other" }]) {
        const exit = yield* Effect.exit(once(Effect.die("run"), change))
        assert.include(String(exit), "another owner")
      }
    }).pipe(Effect.provide(service(forgetful)))
  })
})

const down: Effect.Effect<number, Unavailable> = Effect.fail(new Unavailable({ error: "down" }))

it.effect("expired records are removed in batches, to the last one", () => {
  const limits: Array<number> = []
  const deleted = [1000, 1000, 3]
  const counted = Layer.succeed(IdempotencyRepository, {
    once: () => Effect.die("not asked"),
    deleteExpired: (_, limit) => Effect.sync(() => (limits.push(limit), deleted.shift()!)),
  })
  return Effect.gen(function* () {
    yield* (yield* Idempotency).deleteExpired
    assert.deepStrictEqual([limits, deleted], [[1000, 1000, 1000], []])
  }).pipe(Effect.provide(service(counted)))
})

it.effect("a failed batch of expired records is halved the next time, and grows again", () => {
  const limits: Array<number> = []
  const outcomes = [down, down, Effect.succeed(250), Effect.succeed(500), Effect.succeed(1)]
  const slow = Layer.succeed(IdempotencyRepository, {
    once: () => Effect.die("not asked"),
    deleteExpired: (_, limit) => Effect.suspend(() => (limits.push(limit), outcomes.shift()!)),
  })
  return Effect.gen(function* () {
    const { deleteExpired } = yield* Idempotency
    yield* Effect.flip(deleteExpired)
    yield* Effect.flip(deleteExpired)
    yield* deleteExpired
    assert.deepStrictEqual(limits, [1000, 500, 250, 500, 1000])
  }).pipe(Effect.provide(service(slow)))
})
