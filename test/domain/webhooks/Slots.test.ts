import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import type { AttemptRecord, Claim, ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { makeSlots, maxThrottleLateMillis, type SlotEvent, startClaim, step } from "#src/domain/webhooks/Slots.ts"

const laneCap = 3
const max = 64
const maxBytes = 10_000

const whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

/** The input of a worker: claims, ends of attempts, records, releases and time. */
const Move = Schema.Union([
  Schema.Struct({
    _tag: Schema.tag("claim"),
    due: Schema.NonEmptyArray(Schema.Struct({ lane: whole(0, 11), count: whole(1, 12) })),
  }),
  Schema.Struct({ _tag: Schema.tag("end"), which: whole(0, 1_000), fails: Schema.Boolean }),
  Schema.Struct({ _tag: Schema.tag("record"), count: whole(1, 20) }),
  Schema.Struct({ _tag: Schema.tag("released") }),
  Schema.Struct({ _tag: Schema.tag("time"), millis: whole(0, 1_500) }),
])
const Moves = Schema.Array(Move).check(Schema.isMaxLength(150))

/**
 * Plays moves on the worker's slots, with a queue that respects each claim, and checks every promise after each step.
 */
const play = (all: typeof Moves.Type) => {
  let [time, made] = [0, 0]
  const begun = new Set<string>()
  const inFlight: Array<ClaimedDelivery> = []
  const finished: Array<AttemptRecord> = []
  const releasing: Array<ReadonlyArray<ClaimedDelivery>> = []
  const turns: Array<{ readonly lane: string; readonly at: number }> = []
  const lastBegun = new Map<string, number>()
  /** The times of each lane that no attempt has used. */
  const sendAts = new Map<string, Array<number>>()
  let claims = 0
  /** Whether the last claim left deliveries in the queue, and the number of claims before it. */
  let lastClaim = { left: false, before: 0 }
  const slots = makeSlots({ slots: max, bytes: maxBytes, laneCap, claimBatchSize: 20 })

  const tell = (event: SlotEvent): void => {
    for (const command of step(slots, event)) {
      if (command._tag === "Claim") claims++
      else if (command._tag === "Release") releasing.push(command.deliveries)
      else if (command._tag === "TakeTurnAt") turns.push({ lane: command.lane, at: command.at })
      else if (command._tag === "ClaimAfter") claims++
      else if (command._tag === "TakeTurns") command.lanes.forEach((lane) => tell({ _tag: "LaneTurn", lane, at: time }))
      else begin(command.delivery)
    }
  }
  const begin = (delivery: ClaimedDelivery) => {
    const { lane } = delivery
    if (delivery.ordered) {
      assert.lengthOf(
        inFlight.filter((one) => one.lane === lane),
        0,
        "two at a time in a lane that sends in order",
      )
      assert.isAbove(Number(delivery.deliveryId.slice(1)), lastBegun.get(lane) ?? -1, "started out of order")
      lastBegun.set(lane, Number(delivery.deliveryId.slice(1)))
    }
    if (delivery.delayMillis !== null) {
      const times = sendAts.get(lane)!
      const used = times.findIndex((sendAt) => sendAt <= time && time <= sendAt + maxThrottleLateMillis)
      assert.notStrictEqual(used, -1, "started without a time, or too late for its limit")
      times.splice(used, 1)
    }
    assert.isFalse(begun.has(delivery.deliveryId), "begun twice")
    begun.add(delivery.deliveryId)
    const failed = finished.filter((one) => one.delivery.lane === delivery.lane && one.decision._tag !== "Delivered")
    assert.lengthOf(failed, 0, "started while a failure of its lane is not recorded")
    inFlight.push(delivery)
  }
  const record = (count: number) => tell({ _tag: "Recorded", records: finished.splice(0, count), at: time })

  const claim = (due: ReadonlyArray<{ readonly lane: number; readonly count: number }>) => {
    const shares = startClaim(slots)
    if (shares === undefined) return
    const { limit } = shares
    const before = claims
    let [left, short] = [false, false]
    const now = undefined as unknown as Claim["now"]
    const request: Claim = { claimId: "c", now, leaseUntil: now, ...shares }
    const deliveries: Array<ClaimedDelivery> = []
    for (const { lane, count } of due) {
      const [id, orgId] = [`lane${lane}`, `org${lane % 3}`]
      const { count: has, cap } = shares.lanes.get(id) ?? { count: 0, cap: shares.laneCap }
      const taken = deliveries.filter((one) => one.lane === id).length
      const org = (shares.orgs.get(orgId)?.count ?? 0) + deliveries.filter((one) => one.orgId === orgId).length
      const room = Math.ceil((shares.free.count + org - shares.reserve * org) / (1 + shares.reserve)) - org
      const [ordered, isPaced] = [lane === 9 || lane === 11, lane >= 10]
      const wanted = ordered && has + taken > 0 ? 0 : Math.min(count, cap - has - taken)
      // An org with nothing in flight gets a slot while any slot is free.
      if (org === 0 && has === 0) assert.isAbove(room, 0, "an org without a slot has no share")
      const takes = Math.max(0, Math.min(wanted, room, limit - deliveries.length))
      // The worker claims again when the limit per second allows it.
      left ||= takes < count && !isPaced
      short ||= room < wanted
      for (let n = 0; n < takes; n++) {
        const deliveryId = `d${made++}`
        if (isPaced)
          sendAts.set(
            id,
            [...(sendAts.get(id) ?? []), time + 30 * (taken + n)].toSorted((a, b) => a - b),
          )
        deliveries.push({
          deliveryId,
          ordered,
          delayMillis: isPaced ? 30 * (taken + n) : null,
          orgId,
          endpointId: null,
          lane: id,
          body: "x".repeat(10),
          bytes: 10,
          failures: 0,
          failingSince: null,
        } as unknown as ClaimedDelivery)
      }
    }
    tell({
      _tag: "Claimed",
      claim: request,
      claimed: { deliveries, more: false, throttledUntil: null, short },
      at: time,
    })
    lastClaim = { left, before }
  }

  const check = () => {
    const byLane = Map.groupBy(inFlight, (one) => one.lane)
    for (const [lane, flying] of byLane) assert.isAtMost(flying.length, laneCap, `too many in flight of ${lane}`)
    assert.isAtMost(slots.total, max)
    assert.isAtLeast(slots.total, inFlight.length + finished.length)
    const used = [...slots.orgs.values()].reduce((sum, { count }) => sum + count, 0)
    assert.strictEqual(slots.used, used)
    assert.isTrue([...slots.orgs.values()].every(({ bytes, count }) => count > 0 && bytes === 10 * count))
  }

  const end = (which: number, fails: boolean) => {
    const [delivery] = inFlight.splice(which % inFlight.length, 1)
    const decision = fails ? ({ _tag: "Exhausted" } as const) : ({ _tag: "Delivered" } as const)
    const ended = { delivery: delivery!, decision } as AttemptRecord
    finished.push(ended)
    tell({ _tag: "AttemptEnded", record: ended, at: time })
  }

  const passUntil = (until: number) => {
    while (true) {
      const next = turns.toSorted((a, b) => a.at - b.at)[0]
      if (next === undefined || next.at > until) break
      turns.splice(turns.indexOf(next), 1)
      time = Math.max(time, next.at)
      tell({ _tag: "LaneTurn", lane: next.lane, at: time })
    }
    time = until
  }

  for (const step of all) {
    if (step._tag === "claim") claim(step.due)
    else if (step._tag === "end" && inFlight.length > 0) end(step.which, step.fails)
    else if (step._tag === "record") record(step.count)
    else if (step._tag === "released")
      releasing.splice(0).forEach((deliveries) => tell({ _tag: "Released", deliveries }))
    else if (step._tag === "time") passUntil(time + step.millis)
    check()
  }

  // At the end nothing is lost: each claimed delivery was attempted or released, and every slot is free.
  tell({ _tag: "Stopping" })
  for (let n = 0; n < 10_000 && slots.total > 0; n++) {
    while (inFlight.length > 0) end(0, false)
    record(finished.length)
    for (const one of releasing.splice(0)) {
      tell({ _tag: "Released", deliveries: one })
      for (const { deliveryId } of one) assert.isFalse(begun.has(deliveryId), "released and started")
    }
    tell({ _tag: "Stopping" })
  }
  assert.strictEqual(slots.total, 0)
  if (lastClaim.left)
    assert.isAbove(claims, lastClaim.before, "a delivery that a claim left in the queue is never claimed")
  assert.deepStrictEqual([slots.used, slots.usedBytes, slots.orgs.size], [0, 0, 0])
  return claims
}

it.prop(
  "slots: attempts in flight stay within the cap, no delivery is lost or sent twice, and no lane or org starves",
  { moves: Moves },
  ({ moves }) => void play(moves),
  { arbitrary: { runs: 400, size: 150 } },
)

// Seen failing when lanes started in the order of the claim, so that the other org's lane was the last of four.
it("lanes of several orgs start in turns", () => {
  const slots = makeSlots({ slots: max, bytes: maxBytes, laneCap, claimBatchSize: 20 })
  const deliveries = ["a1", "a2", "a3", "b1"].map(
    (lane) =>
      ({
        deliveryId: lane,
        orgId: lane[0],
        endpointId: lane,
        lane,
        body: "",
        bytes: 0,
        delayMillis: null,
      }) as unknown as ClaimedDelivery,
  )
  const now = undefined as unknown as Claim["now"]
  const claim: Claim = { ...startClaim(slots)!, claimId: "c", now, leaseUntil: now }
  const commands = step(slots, {
    _tag: "Claimed",
    claim,
    claimed: { deliveries, more: false, throttledUntil: null, short: false },
    at: 0,
  })
  assert.deepStrictEqual(commands, [{ _tag: "TakeTurns", lanes: ["a1", "b1", "a2", "a3"] }])
})

// Seen failing when all five were released and lost their times.
it("a late lane with a limit per second loses the times that are over, and keeps its order and the other times", () => {
  const slots = makeSlots({ slots: max, bytes: maxBytes, laneCap, claimBatchSize: 20 })
  const deliveries = [0, 20, 40, 60, 80].map(
    (delayMillis, n) =>
      ({ deliveryId: `d${n}`, orgId: "o", endpointId: "a", lane: "a", body: "", bytes: 0, delayMillis }) as unknown,
  ) as Array<ClaimedDelivery>
  const now = undefined as unknown as Claim["now"]
  const claim: Claim = { ...startClaim(slots)!, claimId: "c", now, leaseUntil: now }
  const claimed = { deliveries, more: false, throttledUntil: null, short: false }
  step(slots, { _tag: "Claimed", claim, claimed, at: 100 })
  const turn = (at: number) =>
    step(slots, { _tag: "LaneTurn", lane: "a", at }).map((command) => {
      if (command._tag === "Attempt") return command.delivery.deliveryId
      return command._tag === "Release" ? command.deliveries.map(({ deliveryId }) => deliveryId) : command._tag
    })
  assert.deepStrictEqual(turn(165), [["d3", "d4"], "d0", "d1", "TakeTurnAt"])
  assert.deepStrictEqual(turn(181), ["d2"])
})

// Seen failing when the early turn counted as one still to come, so that the lane stopped.
it("a lane with a limit per second asks for another turn when one comes early", () => {
  const slots = makeSlots({ slots: max, bytes: maxBytes, laneCap, claimBatchSize: 20 })
  const deliveries = [0, 20].map(
    (delayMillis) =>
      ({
        deliveryId: `${delayMillis}`,
        orgId: "o",
        endpointId: "a",
        lane: "a",
        body: "",
        bytes: 0,
        delayMillis,
      }) as unknown,
  ) as Array<ClaimedDelivery>
  const now = undefined as unknown as Claim["now"]
  const claim: Claim = { ...startClaim(slots)!, claimId: "c", now, leaseUntil: now }
  const claimed = { deliveries, more: false, throttledUntil: null, short: false }
  step(slots, { _tag: "Claimed", claim, claimed, at: 100 })
  const turn = (at: number) => step(slots, { _tag: "LaneTurn", lane: "a", at }).map(({ _tag }) => _tag)
  assert.deepStrictEqual(turn(101), ["Attempt", "TakeTurnAt"])
  assert.deepStrictEqual(turn(119.6), ["TakeTurnAt"])
  assert.deepStrictEqual(turn(120.2), ["Attempt"])
})
