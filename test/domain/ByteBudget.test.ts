import { describe, expect } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as ByteBudget from "#src/domain/ByteBudget.ts"
import { it } from "../support/it.ts"

const options = { bytes: 100, deadline: "10 seconds", maxWaiting: 3, error: "Full." } as const

/** A budget, and requests to it: each keeps its bytes until its `end` runs. */
const worldWith = (more: Partial<ByteBudget.ByteBudgetOptions>) =>
  Effect.sync(() => {
    const budget = ByteBudget.make({ ...options, ...more })
    const granted: Array<string> = []
    const request = Effect.fnUntraced(function* (name: string, bytes: number) {
      const gate = yield* Deferred.make<void>()
      const fiber = yield* budget.take(name[0]!, bytes).pipe(
        Effect.tap(() => Effect.sync(() => void granted.push(name))),
        Effect.andThen(Deferred.await(gate)),
        Effect.scoped,
        Effect.forkChild({ startImmediately: true }),
      )
      const end = Effect.andThen(Deferred.succeed(gate, undefined), Fiber.await(fiber))
      return { fiber, end }
    })
    return { budget, granted, request }
  })
const world = worldWith({})

describe("a budget of bytes", () => {
  it.effect("grants what is free, and queues further requests in order", function* () {
    const { budget, granted, request } = yield* world
    const first = yield* request("a1", 60)
    const second = yield* request("a2", 60)
    // It would fit, but its owner's earlier request comes first.
    const third = yield* request("a3", 10)
    expect([granted, budget.used()]).toEqual([["a1"], 60])
    yield* first.end
    expect([granted, budget.used()]).toEqual([["a1", "a2", "a3"], 70])
    yield* second.end
    yield* third.end
    expect(budget.used()).toBe(0)
  })

  it.effect("keeps reserved bytes for small requests, even while a large one waits", function* () {
    const { granted, request } = yield* worldWith({ reserved: { bytes: 20, maxSmall: 10 } })
    const a1 = yield* request("a1", 100)
    yield* request("b1", 60)
    const [c1] = [yield* request("c1", 10), yield* request("c2", 10), yield* request("d1", 10)]
    expect(granted, "the large request has all but the reserved bytes").toEqual(["a1", "c1", "c2"])
    yield* c1.end
    expect(granted).toEqual(["a1", "c1", "c2", "d1"])
    yield* a1.end
    expect(granted.at(-1)).toBe("b1")
  })

  it.effect("grants an owner no more than its share while another owner waits", function* () {
    const { granted, request } = yield* world
    const [a1, a2] = [yield* request("a1", 50), yield* request("a2", 50)]
    yield* request("a3", 50)
    yield* request("b1", 50)
    yield* a1.end
    expect(granted).toEqual(["a1", "a2", "b1"])
    yield* a2.end
    expect(granted).toEqual(["a1", "a2", "b1", "a3"])
  })

  it.effect("grants an owner its limit, or one larger request", function* () {
    const { granted, request } = yield* worldWith({ perOwner: 30 })
    const a1 = yield* request("a1", 50)
    yield* request("a2", 10)
    yield* request("b1", 20)
    yield* request("b2", 10)
    yield* request("b3", 10)
    expect(granted).toEqual(["a1", "b1", "b2"])
    yield* a1.end
    expect(granted).toEqual(["a1", "b1", "b2", "a2"])
  })

  it.effect("reclaims idle bytes before a request waits, and no more than it needs", function* () {
    let idle = 0
    const leases: Array<ByteBudget.Reservation> = []
    const reclaim = () => {
      leases.pop()?.resize(0)
      return idle-- > 0
    }
    const { budget, granted, request } = yield* worldWith({ reclaim })
    for (; idle < 3; idle++) leases.push(yield* budget.take("idle", 30))
    yield* request("a1", 40)
    expect([granted, budget.used(), idle]).toEqual([["a1"], 100, 2])
    yield* request("a2", 70)
    expect([granted, budget.used(), idle]).toEqual([["a1"], 40, -1])
  })

  it.effect("a request larger than the budget waits for all of it, and no later request overtakes it", function* () {
    const { budget, granted, request } = yield* world
    const small = yield* request("a1", 10)
    const huge = yield* request("b1", 1_000)
    yield* request("a2", 10)
    expect(granted).toEqual(["a1"])
    yield* small.end
    expect([granted, budget.used()]).toEqual([["a1", "b1"], 100])
    yield* huge.end
    expect([granted, budget.used()]).toEqual([["a1", "b1", "a2"], 10])
  })

  it.effect("refuses a request after ten seconds, and at once when too many of its owner wait", function* () {
    const { budget, granted, request } = yield* world
    const holder = yield* request("a0", 100)
    const waiting = yield* Effect.forEach([1, 2, 3], (n) => request(`a${n}`, 1))
    expect(yield* Effect.flip(Effect.scoped(budget.take("a", 1)))).toMatchObject({
      _tag: "Unavailable",
      error: "Full.",
    })
    const other = yield* request("b1", 1)
    // The deadlines start once the requests have run.
    yield* Effect.yieldNow
    yield* TestClock.adjust("10 seconds")
    expect(budget.used()).toBe(100)
    for (const { fiber } of [...waiting, other]) {
      expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ _tag: "Unavailable" })
    }
    yield* holder.end
    expect([granted, budget.used()]).toEqual([["a0"], 0])
  })

  it.effect("drops a request that is interrupted", function* () {
    const { budget, granted, request } = yield* world
    const holder = yield* request("a1", 100)
    const gone = yield* request("a2", 100)
    yield* request("b1", 40)
    yield* Fiber.interrupt(gone.fiber)
    yield* Fiber.interrupt(holder.fiber)
    expect([granted, budget.used()]).toEqual([["a1", "b1"], 40])
  })
})
