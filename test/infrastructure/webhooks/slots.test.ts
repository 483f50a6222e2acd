import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import type { ClaimedDelivery } from "#src/domain/webhooks/Deliveries.ts"
import type { AttemptRecord, Claim } from "#src/domain/webhooks/DeliveryQueue.ts"
import { makeSlots } from "#src/infrastructure/webhooks/slots.ts"

const laneCap = 3
const max = 64
const maxBytes = 10_000

const whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

/** What happens to a worker, one after the other: a claim, the end of an attempt, a record, a release, time. */
const Step = Schema.Union([
  Schema.Struct({
    _tag: Schema.tag("claim"),
    due: Schema.NonEmptyArray(Schema.Struct({ lane: whole(0, 11), count: whole(1, 12) })),
  }),
  Schema.Struct({ _tag: Schema.tag("end"), which: whole(0, 1_000), fails: Schema.Boolean }),
  Schema.Struct({ _tag: Schema.tag("record"), count: whole(1, 20) }),
  Schema.Struct({ _tag: Schema.tag("released") }),
  Schema.Struct({ _tag: Schema.tag("time"), millis: whole(0, 1_500) }),
])
const Steps = Schema.Array(Step).check(Schema.isMaxLength(150))

/** The worker's slots with a queue that gives what the claim allows, and every promise checked after each step. */
const play = (all: typeof Steps.Type) => {
  let [time, made] = [0, 0]
  const begun = new Set<string>()
  const inFlight: Array<ClaimedDelivery> = []
  const finished: Array<AttemptRecord> = []
  const releasing: Array<ReadonlyArray<ClaimedDelivery>> = []
  let lows = 0
  const slots = makeSlots({
    max,
    maxBytes,
    laneCap,
    now: () => time,
    begin: (delivery) => {
      assert.isFalse(begun.has(delivery.deliveryId), "begun twice")
      begun.add(delivery.deliveryId)
      const failed = finished.filter((one) => one.delivery.lane === delivery.lane && one.verdict._tag !== "Delivered")
      assert.lengthOf(failed, 0, "begun while a failure of its lane is not recorded")
      inFlight.push(delivery)
    },
    release: (deliveries) => void releasing.push(deliveries),
    onLow: () => void lows++,
  })
  const record = (count: number) => slots.recorded(finished.splice(0, count))

  const claim = (due: ReadonlyArray<{ readonly lane: number; readonly count: number }>) => {
    const limit = Math.min(20, slots.claimable())
    if (limit <= 0) return
    const shares = slots.shares()
    const now = undefined as unknown as Claim["now"]
    const request: Claim = { claimId: "c", now, leaseUntil: now, limit, ...shares }
    const deliveries: Array<ClaimedDelivery> = []
    for (const { lane, count } of due) {
      const [id, orgId] = [`lane${lane}`, `org${lane % 3}`]
      const { count: has, cap } = shares.lanes.get(id) ?? { count: 0, cap: shares.laneCap }
      const taken = deliveries.filter((one) => one.lane === id).length
      const org = (shares.orgs.get(orgId)?.count ?? 0) + deliveries.filter((one) => one.orgId === orgId).length
      const room = Math.ceil((shares.free.count + org - shares.reserve * org) / (1 + shares.reserve)) - org
      for (let n = 0; n < Math.min(count, cap - has - taken, room) && deliveries.length < limit; n++) {
        deliveries.push({
          deliveryId: `d${made++}`,
          orgId,
          endpointId: null,
          lane: id,
          body: "x".repeat(10),
          failures: 0,
          failingSince: null,
        } as unknown as ClaimedDelivery)
      }
    }
    for (const lane of slots.add({ deliveries, more: false, short: false }, request)) slots.begin(lane)
  }

  const check = () => {
    const byLane = Map.groupBy(inFlight, (one) => one.lane)
    for (const [lane, flying] of byLane) assert.isAtMost(flying.length, laneCap, `too many in flight of ${lane}`)
    assert.isAtMost(slots.total(), max)
    assert.isAtLeast(slots.total(), inFlight.length + finished.length)
    const { free, orgs } = slots.shares()
    const used = [...orgs.values()].reduce((sum, { count }) => sum + count, 0)
    assert.strictEqual(free.count, max - used)
    assert.isTrue([...orgs.values()].every(({ bytes, count }) => count > 0 && bytes === 10 * count))
  }

  const end = (which: number, fails: boolean) => {
    const [delivery] = inFlight.splice(which % inFlight.length, 1)
    const verdict = fails ? ({ _tag: "Exhausted" } as const) : ({ _tag: "Delivered" } as const)
    const ended = { delivery: delivery!, verdict } as AttemptRecord
    finished.push(ended)
    slots.ended(ended)
  }

  for (const step of all) {
    if (step._tag === "claim") claim(step.due)
    else if (step._tag === "end" && inFlight.length > 0) end(step.which, step.fails)
    else if (step._tag === "record") record(step.count)
    else if (step._tag === "released") for (const one of releasing.splice(0)) slots.removed(one)
    else if (step._tag === "time") time += step.millis
    check()
  }

  // At the end nothing is lost: what was claimed was attempted or released, and every slot is free.
  slots.clear()
  for (let n = 0; n < 10_000 && slots.total() > 0; n++) {
    while (inFlight.length > 0) end(0, false)
    record(finished.length)
    for (const one of releasing.splice(0)) {
      slots.removed(one)
      for (const { deliveryId } of one) assert.isFalse(begun.has(deliveryId), "released and begun")
    }
    slots.clear()
  }
  assert.strictEqual(slots.total(), 0)
  assert.deepStrictEqual([slots.shares().free.count, slots.shares().orgs.size], [max, 0])
  return lows
}

it.prop(
  "slots: never more than the cap in flight, nothing begun twice or lost, and every slot is freed",
  { steps: Steps },
  ({ steps }) => void play(steps),
  { arbitrary: { runs: 400, size: 150 } },
)
