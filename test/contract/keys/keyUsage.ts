import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type HourOfKey, KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import type { It } from "../support.ts"
import { insertOrg, newId } from "../support.ts"

const hour = (overrides: Pick<HourOfKey, "orgId" | "keyId" | "hour"> & Partial<HourOfKey>): HourOfKey => ({
  valid: 1,
  forbidden: 2,
  limited: 3,
  cost: 10 ** 12,
  ...overrides,
})
const counts = { valid: 1, forbidden: 2, limited: 3, cost: 10 ** 12 }
const twice = { valid: 2, forbidden: 4, limited: 6, cost: 2 * 10 ** 12 }

/** The contract of every KeyUsageRepository. */
export const keyUsage = (it: It) => {
  it.effect("usage: is added up by key, by org and by interval", function* () {
    const { add, find } = yield* KeyUsageRepository
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const [a, b] = [yield* newId, yield* newId]
    yield* add([hour({ orgId, keyId: a, hour: 48 }), hour({ orgId, keyId: b, hour: 48 })])
    yield* add([
      hour({ orgId, keyId: a, hour: 48 }),
      hour({ orgId, keyId: a, hour: 71 }),
      hour({ orgId, keyId: a, hour: 72 }),
    ])
    yield* add([hour({ orgId: other.orgId, keyId: a, hour: 48 })])
    const hours = { from: 48, to: 72, every: 1 }
    assert.deepStrictEqual(yield* find(orgId, a, hours), [
      { hour: 48, ...twice },
      { hour: 71, ...counts },
    ])
    assert.deepStrictEqual(yield* find(orgId, b, hours), [{ hour: 48, ...counts }])
    assert.deepStrictEqual(yield* find(orgId, undefined, { from: 24, to: 96, every: 24 }), [
      { hour: 48, valid: 4, forbidden: 8, limited: 12, cost: 4 * 10 ** 12 },
      { hour: 72, ...counts },
    ])
    assert.deepStrictEqual(yield* find(orgId, a, { from: 49, to: 71, every: 1 }), [])
    assert.deepStrictEqual(yield* find(yield* newId, a, hours), [])
  })

  it.effect("usage: counts that several replicas add at once are all kept", function* () {
    const { add, find } = yield* KeyUsageRepository
    const { orgId } = yield* insertOrg()
    const keys = yield* Effect.replicateEffect(newId, 5)
    const batch = keys.map((keyId) => hour({ orgId, keyId, hour: 9 }))
    yield* Effect.forEach([batch, batch.toReversed(), batch, batch.toReversed()], add, { concurrency: "unbounded" })
    assert.strictEqual((yield* find(orgId, undefined, { from: 9, to: 10, every: 1 }))[0]!.valid, 20)
  })

  it.effect("usage: an unknown org has none, and old hours are removed in batches", function* () {
    const { add, find, removeOld } = yield* KeyUsageRepository
    const [{ orgId }, missing, keyId] = [yield* insertOrg(), yield* newId, yield* newId]
    yield* add([
      hour({ orgId: missing, keyId, hour: 5 }),
      hour({ orgId, keyId, hour: 5 }),
      hour({ orgId, keyId, hour: 6 }),
    ])
    assert.deepStrictEqual(yield* find(missing, keyId, { from: 0, to: 10, every: 1 }), [])
    while ((yield* removeOld(6, 1)) > 0);
    const left = yield* find(orgId, keyId, { from: 0, to: 10, every: 1 })
    assert.deepStrictEqual(
      left.map((one) => one.hour),
      [6],
    )
    assert.deepStrictEqual((yield* find(orgId, undefined, { from: 0, to: 10, every: 1 })).length, 1)
  })
}
