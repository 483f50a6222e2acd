import { assert, describe, it } from "@effect/vitest"
import { DateTime } from "effect"
import type { Claim } from "#src/domain/webhooks/DeliveryQueue.ts"
import { type Found, type LaneHead, makeQueuePositions, type Place } from "#src/infrastructure/queue/queuePositions.ts"

const now = DateTime.makeUnsafe("2026-11-25T12:00:00.000Z")
const at = (seconds: number) => DateTime.add(now, { seconds })
const iso = (seconds: number) => DateTime.formatIso(at(seconds))
const place = (seconds: number, id = "") => ({ micros: 1000 * at(seconds).epochMilliseconds, id })
const claim = (options: Partial<Claim> = {}): Claim => ({
  claimId: "claim",
  now,
  leaseUntil: at(60),
  limit: 100,
  laneCap: 10,
  lanes: new Map(),
  free: { count: 1_000, bytes: 2 ** 30 },
  reserve: 1 / 3,
  minBacklog: 1,
  orgs: new Map(),
  ...options,
})
const lane = (name: string) => name.padEnd(26, "0")
const heads = (...names: ReadonlyArray<string>): ReadonlyArray<LaneHead> =>
  names.map((name) => [name.charAt(0), lane(name), iso(-10)])
const nothing: Found = { head: null, lanes: [], backlogged: 0, backloggedLanes: [] }
const positionsAfter = (tookMillis: number, ...names: ReadonlyArray<string>) => {
  const positions = makeQueuePositions()
  positions.startLook()
  positions.looked({ at: now, head: null, lanes: heads(...names), tookMillis }, 100)
  return positions
}
const namesOf = (lanes: ReadonlyArray<{ readonly lane: string }>) => lanes.map(({ lane }) => lane.replace(/0+$/, ""))

describe("where claims begin to read", () => {
  it("is the beginning while a look is fast", () => {
    const positions = positionsAfter(0.1, "a")
    positions.claimed(claim(), positions.reads(claim()), {
      ...nothing,
      head: new Date(iso(-5)),
      lanes: [[1, place(-4)]],
    })
    const { headSince, lanes } = positions.reads(claim())
    assert.deepStrictEqual([headSince, lanes[0]!.since], [null, null])
  })

  it("is the place that the last claim left, while a look is slow", () => {
    const positions = positionsAfter(100, "a")
    positions.claimed(claim(), positions.reads(claim()), {
      ...nothing,
      head: new Date(iso(-5)),
      lanes: [[1, place(-4)]],
    })
    const { headSince, lanes } = positions.reads(claim())
    assert.deepStrictEqual([headSince, lanes[0]!.since], [at(-5.5), place(-4)])
  })

  it("is what the last claim left of a lane with many deliveries in flight here", () => {
    const positions = positionsAfter(0.1, "a")
    const inFlight = (count: number) => claim({ lanes: new Map([[lane("a"), { count, cap: 512, works: true }]]) })
    const found = (next: Place): Found => ({ ...nothing, lanes: [[400, next]] })
    positions.claimed(inFlight(0), positions.reads(inFlight(0)), found(place(-4, "last")))
    const since = (count: number) => positions.reads(inFlight(count)).lanes[0]!.since
    assert.deepStrictEqual([since(64), since(65)], [null, place(-4, "last")])
    // Another replica's transaction may commit a little later than its time.
    positions.claimed(inFlight(65), positions.reads(inFlight(65)), found(place(-0.1, "last")))
    assert.deepStrictEqual(since(65), place(-0.5))
    // What was queued while the claim was in flight comes before what the claim left.
    const reads = positions.reads(inFlight(65))
    positions.backlogged([["a", lane("a"), iso(-9)]])
    positions.claimed(inFlight(65), reads, found(place(-4, "last")))
    assert.deepStrictEqual(since(65), place(-9.5))
  })

  it("moves back to what this process queues, to what a look finds, and with the clock", () => {
    const positions = positionsAfter(100, "a")
    positions.queued(at(-20).epochMilliseconds)
    positions.backlogged([["a", lane("a"), iso(-30)]])
    assert.deepStrictEqual(
      [positions.reads(claim()).headSince, positions.reads(claim()).lanes[0]!.since],
      [at(-20.5), place(-30.5)],
    )
    positions.looked({ at: now, head: new Date(iso(-40)), lanes: [["a", lane("a"), iso(-50)]], tookMillis: 100 }, 100)
    assert.deepStrictEqual(
      [positions.reads(claim()).headSince, positions.reads(claim()).lanes[0]!.since],
      [at(-40.5), place(-50.5)],
    )
    assert.isNull(positions.reads(claim({ now: at(-3600) })).headSince)
  })

  it("stays before what this process queues at the head while a claim is in flight", () => {
    const positions = positionsAfter(100, "a")
    const reads = positions.reads(claim())
    positions.queued(at(-20).epochMilliseconds)
    positions.claimed(claim(), reads, { ...nothing, head: new Date(iso(-5)), lanes: [[1, place(-4)]] })
    assert.deepStrictEqual(positions.reads(claim()).headSince, at(-20.5))
  })

  it("is the last look in a lane that had no backlog then", () => {
    const positions = positionsAfter(100)
    positions.backlogged([["b", lane("b"), iso(1)]])
    assert.deepStrictEqual(positions.reads(claim()).lanes[0]!.since, place(-0.5))
  })

  it("looks use a twentieth of the time", () => {
    const { found, waitMillis } = makeQueuePositions().looked({ at: now, head: null, lanes: [], tookMillis: 200 }, 1)
    assert.deepStrictEqual([found, waitMillis], [false, 4_000])
  })
})

describe("lanes with a backlog", () => {
  it("have their turns, orgs first", () => {
    const positions = positionsAfter(0.1, "a1", "a2", "a3", "b1")
    const reads = positions.reads(claim({ limit: 2 }))
    assert.deepStrictEqual(
      [reads.orgs, namesOf(reads.lanes)],
      [
        [
          { orgId: "a", share: 1, isCut: true },
          { orgId: "b", share: 1, isCut: true },
        ],
        ["a1", "a2", "a3", "b1"],
      ],
    )
    // The claim comes to the first lane of each org.
    const found: Found["lanes"] = [
      [1, place(-10)],
      [0, null],
      [0, null],
      [1, place(-10)],
    ]
    assert.isTrue(positions.claimed(claim(), reads, { ...nothing, lanes: found }))
    assert.deepStrictEqual(namesOf(positions.reads(claim()).lanes), ["a2", "a3", "a1", "b1"])
  })

  it("are forgotten when a claim finds nothing, unless they have deliveries in flight or new ones", () => {
    const positions = positionsAfter(0.1, "a1", "a2", "a3")
    const inFlight = claim({ lanes: new Map([[lane("a2"), { count: 1, cap: 10, works: true }]]) })
    const reads = positions.reads(inFlight)
    positions.backlogged(heads("a3"))
    const empty: Found["lanes"] = [
      [0, null],
      [0, null],
      [0, null],
    ]
    positions.claimed(inFlight, reads, { ...nothing, lanes: empty })
    assert.deepStrictEqual(namesOf(positions.reads(claim()).lanes), ["a2", "a3"])
  })

  it("without a free slot wait, as do orgs without a share", () => {
    const positions = positionsAfter(0.1, "a1", "a2", "b1")
    const { lanes, short } = positions.reads(
      claim({
        lanes: new Map([[lane("a1"), { count: 10, cap: 10, works: true }]]),
        orgs: new Map([["b", { count: 3_000, bytes: 0 }]]),
      }),
    )
    assert.deepStrictEqual([namesOf(lanes), short], [["a2"], true])
  })

  it("that send in order are read again when their retry is due", () => {
    const positions = positionsAfter(0.1)
    positions.waits("a", lane("a"), at(5))
    assert.deepStrictEqual(positions.reads(claim({ now: at(4) })).lanes, [])
    assert.deepStrictEqual(namesOf(positions.reads(claim({ now: at(5) })).lanes), ["a"])
  })
})
