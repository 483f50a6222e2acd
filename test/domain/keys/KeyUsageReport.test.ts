import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { Unavailable } from "#src/domain/Errors.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { KeyUsageReport, KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import { RetentionDays } from "#src/domain/Retention.ts"
import * as fakes from "../../fakes/repositories.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, failureOf, makeTenant, outcomeOf, services, unknownId } from "../support.ts"

const hour = 3_600_000
const time = (text: string) => DateTime.makeUnsafe(text)

/** Services whose writes of usage can be made to fail. */
const world = () => {
  const control: { before: Effect.Effect<void, Unavailable> } = { before: Effect.void }
  const watched = Layer.effect(
    KeyUsageRepository,
    KeyUsageRepository.use((repository) =>
      Effect.succeed({ ...repository, add: (hours) => Effect.andThen(control.before, repository.add(hours)) }),
    ),
  ).pipe(Layer.provideMerge(fakes.layer))
  return { control, layer: Layer.provideMerge(KeyUsageReport.layer, services({ repositories: watched })) }
}

const usageOf = (
  orgId: string,
  keyId: string | undefined,
  query: Parameters<KeyUsageReport["Service"]["ofOrg"]>[1] = {},
) =>
  KeyUsageReport.use((usages) =>
    asAdministrator(keyId === undefined ? usages.ofOrg(orgId, query) : usages.ofKey(orgId, keyId, query)),
  )

const used = (
  all: ReadonlyArray<{ at: DateTime.Utc; valid: number; forbidden: number; limited: number; cost: number }>,
) =>
  all
    .filter(({ forbidden, limited, valid }) => valid + forbidden + limited > 0)
    .map(({ at, ...counts }) => ({ at: DateTime.formatIso(at), ...counts }))

const validate = (key: string, use: object = {}) =>
  ApiKeys.use((keys) => outcomeOf(asAdministrator(keys.validate(Redacted.make(key), "::1", use))))

describe("the usage of keys", () => {
  it.effect("is counted by outcome and hour, also when a write failed", () => {
    const { control, layer } = world()
    return Effect.gen(function* () {
      yield* TestClock.setTime(time("2026-11-20T17:59:59.000Z").epochMilliseconds)
      const { orgId, orgKey, projectKey } = yield* makeTenant
      const { flushUsage } = yield* ApiKeys
      for (const use of [{}, { cost: 40 }, { cost: 0 }, { permissions: ["a"] }]) yield* validate(orgKey.key, use)
      yield* validate(projectKey.key)
      control.before = Effect.fail(new Unavailable({ error: "down" }))
      yield* Effect.flip(flushUsage)
      yield* TestClock.adjust("1 second")
      yield* validate(orgKey.key)
      control.before = Effect.void
      yield* flushUsage
      yield* flushUsage
      const first = { at: "2026-11-20T17:00:00.000Z", valid: 3, forbidden: 1, limited: 0, cost: 41 }
      const second = { at: "2026-11-20T18:00:00.000Z", valid: 1, forbidden: 0, limited: 0, cost: 1 }
      const { usage } = yield* usageOf(orgId, orgKey.id)
      assert.deepStrictEqual(used(usage), [first, second])
      assert.strictEqual(usage.length, 24)
      const ofOrg = used((yield* usageOf(orgId, undefined)).usage)
      assert.deepStrictEqual(ofOrg, [{ ...first, valid: 4, cost: 42 }, second])
      const query = { every: "day" as const, from: time("2026-11-19T23:00:00Z"), to: time("2026-11-21T00:00:00Z") }
      const days = (yield* usageOf(orgId, undefined, query)).usage
      assert.deepStrictEqual(
        days.map(({ at, valid }) => [DateTime.formatIso(at), valid]),
        [
          ["2026-11-19T00:00:00.000Z", 0],
          ["2026-11-20T00:00:00.000Z", 5],
        ],
      )
      // The use of a key as a credential of this service does not count.
      yield* (yield* ApiKeys).authenticate(Redacted.make(orgKey.key), "127.0.0.1")
      yield* flushUsage
      assert.deepStrictEqual(used((yield* usageOf(orgId, orgKey.id)).usage), [first, second])
    }).pipe(Effect.provide(layer))
  })

  it.effect("exists for known keys and orgs, in at most 1,000 intervals", () =>
    Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const from = time("2026-01-01T00:00:00Z")
      assert.include(yield* failureOf(usageOf(orgId, unknownId)), "no such key")
      assert.include(yield* failureOf(usageOf(unknownId, undefined)), "no such org")
      assert.include(yield* failureOf(usageOf(orgId, orgKey.id, { from, to: from })), "to must be after from")
      const to = (hours: number) => DateTime.add(from, { milliseconds: hours * hour })
      assert.strictEqual((yield* usageOf(orgId, orgKey.id, { from, to: to(1_000) })).usage.length, 1_000)
      assert.include(yield* failureOf(usageOf(orgId, orgKey.id, { from, to: to(1_000.5) })), "1,000 intervals")
    }).pipe(Effect.provide(world().layer)),
  )

  it.effect("is removed after its retention", () =>
    Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const { add, find } = yield* KeyUsageRepository
      const row = { orgId, keyId: orgKey.id, valid: 1, forbidden: 0, limited: 0, cost: 1 }
      yield* add([0, 1, 24, 25].map((n) => ({ ...row, hour: n })))
      yield* TestClock.setTime(3 * 24 * hour)
      assert.strictEqual(yield* KeyUsageReport.use(({ removeOld }) => removeOld), 4)
      const left = yield* find(orgId, orgKey.id, { from: 0, to: 99, every: 1 })
      assert.deepStrictEqual(
        left.map((one) => one.hour),
        [24, 25],
      )
    }).pipe(Effect.provide(world().layer), Effect.provideService(RetentionDays, 2)),
  )
})
