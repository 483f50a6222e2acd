import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { insertOrg } from "../support.ts"
import {
  claim,
  type ClaimOptions,
  claimWithMore,
  epoch,
  insertEndpoint,
  type It,
  makeEvent,
  plus,
} from "./webhookSupport.ts"

/** An org with a number of endpoints, and a number of events for all of them. */
const insertCrowd = Effect.fnUntraced(function* (now: ReturnType<typeof epoch>, endpoints: number, events: number) {
  const { orgId } = yield* insertOrg()
  for (let n = 0; n < endpoints; n++) yield* insertEndpoint(orgId, { now })
  for (let n = 0; n < events; n++) yield* makeEvent(orgId, now)
  return orgId
})

/** The number of deliveries that a claim takes from each org. */
const countsOf = Effect.fnUntraced(function* (...[now, options]: Parameters<typeof claim>) {
  const counts = new Map<string, number>()
  for (const { orgId } of yield* claim(now, options)) counts.set(orgId, (counts.get(orgId) ?? 0) + 1)
  return counts
})

/** The contract of `claim` between orgs, in every DeliveryQueue. */
export const shares = (it: It) => {
  it.effect("shares: a claim takes one delivery of each org before a second of any, whatever came first", function* () {
    const now = epoch()
    const large = yield* insertCrowd(now, 20, 3)
    const small = yield* insertCrowd(plus(now, 1), 2, 1)
    const other = yield* insertCrowd(plus(now, 1), 1, 1)
    const counts = yield* countsOf(plus(now, 2), { limit: 8 })
    assert.deepStrictEqual([counts.get(large), counts.get(small), counts.get(other)], [5, 2, 1])
    // The same holds for backlogged deliveries.
    const later = yield* insertCrowd(plus(now, 3), 2, 2)
    const next = yield* countsOf(plus(now, 4), { limit: 8 })
    assert.deepStrictEqual([next.get(large), next.get(later)], [4, 4])
  })

  it.effect("shares: an org gets at most three times the slots that stay free, and the rest waits", function* () {
    const now = epoch()
    const orgId = yield* insertCrowd(now, 30, 1)
    const share = (free: number, has: number): ClaimOptions => ({
      free: { count: free, bytes: 2 ** 30 },
      reserve: 1 / 3,
      orgs: has === 0 ? new Map() : new Map([[orgId, { count: has, bytes: 0 }]]),
    })
    const short = yield* claimWithMore(now, share(16, 0))
    assert.deepStrictEqual([short.deliveries.length, short.short], [12, true])
    assert.deepStrictEqual((yield* claim(now, share(4, 12))).length, 0)
    assert.deepStrictEqual((yield* claim(now, share(10, 6))).length, 6)
    // A claim leaves slots for the other orgs with a backlog, which earlier tests created.
    const rest = yield* Effect.replicateEffect(claimWithMore(now, share(1_000, 0)), 5)
    assert.strictEqual(rest.flatMap(({ deliveries }) => deliveries).length, 12)
    assert.isFalse(rest.some((one) => one.short))
  })

  it.effect(
    "shares: past three quarters of a share, a lane gets more only if it succeeds or has nothing in flight",
    function* () {
      const now = epoch()
      const { orgId } = yield* insertOrg()
      const [hangs, works, fresh] = [
        yield* insertEndpoint(orgId, { now }),
        yield* insertEndpoint(orgId, { now }),
        yield* insertEndpoint(orgId, { now }),
      ]
      for (let n = 0; n < 6; n++) yield* makeEvent(orgId, now)
      const claimed = yield* claim(now, {
        lanes: new Map([
          [hangs!, { count: 8, cap: 20, works: false }],
          [works!, { count: 4, cap: 20, works: true }],
        ]),
        // The org may have twelve of sixteen slots, and has them.
        free: { count: 12, bytes: 2 ** 30 },
        reserve: 1 / 3,
        orgs: new Map([[orgId, { count: 12, bytes: 0 }]]),
      })
      const counts = [hangs, works, fresh].map((id) => claimed.filter(({ endpointId }) => endpointId === id).length)
      assert.deepStrictEqual(counts, [0, 5, 1])
    },
  )
}
