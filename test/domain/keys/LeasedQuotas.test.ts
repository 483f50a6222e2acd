import { assert, describe } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { Unavailable } from "#src/domain/Errors.ts"
import type { CreateOrgKey } from "#src/domain/keys/ApiKey.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import type { LeaseAsk } from "#src/domain/keys/keyLimits.ts"
import { KeyCounterRepository } from "#src/domain/keys/LeasedQuotas.ts"
import * as KeyUsage from "#src/infrastructure/keys/keyUsageSql.ts"
import * as fakes from "../../fakes/repositories.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, makeTenant, outcomeOf, services } from "../support.ts"

/** Services that record their leases of counters. `control.before` makes them fail. */
const watched = () => {
  const asks: Array<LeaseAsk> = []
  const control: { before: Effect.Effect<void, Unavailable> } = { before: Effect.void }
  const counters = Layer.effect(
    KeyCounterRepository,
    KeyCounterRepository.use((repository) =>
      Effect.succeed({
        lease: (counter, ask) =>
          Effect.suspend(() => {
            asks.push(ask)
            return Effect.andThen(control.before, repository.lease(counter, ask))
          }),
      }),
    ),
  ).pipe(Layer.provideMerge(fakes.layer))
  return { asks, control, layer: services({ repositories: counters }) }
}

const create = Effect.fnUntraced(function* (input: Omit<typeof CreateOrgKey.Type, "name">) {
  const { orgId } = yield* makeTenant
  const keys = yield* ApiKeys
  const { id, key } = yield* asAdministrator(keys.createForOrg(orgId, { name: "k", ...input }))
  const use = (cost = 1) => outcomeOf(asAdministrator(keys.validate(Redacted.make(key), "::1", { cost })))
  return {
    id,
    orgId,
    keys,
    use,
    uses: (times: number) =>
      Effect.map(Effect.replicateEffect(use(), times), (all) => all.filter((one) => one === "ok").length),
    /** Units that are neither used nor leased. */
    left: World.use(({ counters }) => Effect.sync(() => counters.get(id)!.counter.credits?.remaining)),
  }
})

const down = Effect.fail(new Unavailable({ error: "down" }))

describe("leased quotas", () => {
  it.effect("grow with use: a thousand uses ask the database a few times", () => {
    const { asks, layer } = watched()
    return Effect.gen(function* () {
      const { uses } = yield* create({ rateLimit: { limit: 100_000, window: 60 }, credits: { remaining: 100_000 } })
      assert.strictEqual(yield* uses(1_000), 1_000)
      assert.isAtMost(asks.length, 12)
    }).pipe(Effect.provide(layer))
  })

  it.effect("of a slow key stay small, and below 100 each use asks the database", () => {
    const { asks, layer } = watched()
    return Effect.gen(function* () {
      const slow = yield* create({ rateLimit: { limit: 10_000, window: 60 } })
      for (let n = 0; n < 10; n++) {
        yield* slow.use()
        yield* TestClock.adjust("20 seconds")
      }
      assert.isAtMost(Math.max(...asks.map(({ want }) => want)), 2)
      const small = yield* create({ credits: { remaining: 99 } })
      asks.length = 0
      assert.strictEqual(yield* small.uses(99), 99)
      assert.strictEqual(asks.length, 99)
    }).pipe(Effect.provide(layer))
  })

  it.effect("are returned when idle and at shutdown, to the unit", () =>
    Effect.gen(function* () {
      const { left, uses } = yield* create({ credits: { remaining: 50_000 } })
      yield* uses(20)
      assert.isBelow((yield* left)!, 49_980)
      yield* Effect.gen(function* () {
        yield* TestClock.adjust("1900 millis")
        assert.isBelow((yield* left)!, 49_980)
        yield* TestClock.adjust("1100 millis")
        assert.strictEqual(yield* left, 49_980)
        yield* uses(5)
      }).pipe(Effect.provide(KeyUsage.usageWorker))
      assert.strictEqual(yield* left, 49_975)
    }).pipe(Effect.provide(services())),
  )

  it.effect("can be used while the database is unavailable, and no unit more", () => {
    const { control, layer } = watched()
    return Effect.gen(function* () {
      const { left, use, uses } = yield* create({ credits: { remaining: 5_000 } })
      yield* uses(20)
      const held = 5_000 - 20 - (yield* left)!
      assert.isAbove(held, 0)
      control.before = down
      assert.strictEqual(yield* uses(held + 20), held)
      assert.strictEqual(yield* use(), "Unavailable")
      assert.strictEqual(yield* use(0), "ok")
      control.before = Effect.void
      assert.strictEqual(yield* uses(5_000), 5_000 - 20 - held)
    }).pipe(Effect.provide(layer))
  })

  it.effect("end with their lifetime, also while the database is unavailable", () => {
    const { control, layer } = watched()
    return Effect.gen(function* () {
      const { use, uses } = yield* create({ rateLimit: { limit: 1_000, window: 10 } })
      yield* uses(20)
      control.before = down
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* use(), "Unavailable")
    }).pipe(Effect.provide(layer))
  })

  it.effect("are not requested while a refusal is known", () => {
    const { asks, layer } = watched()
    return Effect.gen(function* () {
      const { use, uses } = yield* create({ rateLimit: { limit: 200, window: 100 } })
      assert.strictEqual(yield* uses(205), 200)
      asks.length = 0
      assert.strictEqual(yield* uses(500), 0)
      assert.strictEqual(asks.length, 0)
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* use(), "TooManyRequests")
      assert.strictEqual(asks.length, 1)
    }).pipe(Effect.provide(layer))
  })

  it.effect("a use that costs too much does not delay a cheaper one", () =>
    Effect.gen(function* () {
      const { use } = yield* create({ credits: { remaining: 5 } })
      const all = yield* Effect.all([use(6), use(2), use(4), use(3)], { concurrency: "unbounded" })
      assert.deepStrictEqual(all, ["CreditsExhausted", "ok", "CreditsExhausted", "ok"])
    }).pipe(Effect.provide(services())),
  )

  it.effect("end when the limits change", () =>
    Effect.gen(function* () {
      const { id, keys, orgId, uses } = yield* create({ credits: { remaining: 5_000 } })
      yield* uses(20)
      yield* asAdministrator(keys.update(orgId, id, { credits: { remaining: 3 } }))
      assert.strictEqual(yield* uses(10), 3)
      yield* asAdministrator(keys.update(orgId, id, { credits: null, rateLimit: { limit: 2, window: 60 } }))
      assert.strictEqual(yield* uses(10), 2)
    }).pipe(Effect.provide(services())),
  )
})
