import { assert, it, vi } from "@effect/vitest"
import { Effect, Exit, Fiber, Latch } from "effect"
import { Unavailable } from "#src/domain/Errors.ts"
import { WaitingRequests } from "#src/domain/WaitingRequests.ts"
import { answerOrUnavailable, orUnavailable } from "#src/infrastructure/orUnavailable.ts"

// Seen failing: without the limit every one of them waited.
it.live("1,024 requests may wait for the database; one more is refused at once, background work never", () =>
  Effect.gen(function* () {
    const answered = yield* Latch.make()
    const waiting = { count: 0 }
    const request = orUnavailable(answered.await).pipe(Effect.provideService(WaitingRequests, waiting))
    const requests = yield* Effect.forEach(Array.from({ length: 1_024 }), () => Effect.forkChild(request))
    yield* Effect.yieldNow
    assert.strictEqual(waiting.count, 1_024)
    const refused = yield* Effect.flip(request)
    assert.instanceOf(refused, Unavailable)
    assert.strictEqual(refused.error, "Too many requests wait for the database; try again.")
    const background = yield* Effect.forkChild(orUnavailable(answered.await))
    // Whoever leaves makes room.
    yield* Fiber.interrupt(requests[0]!)
    assert.strictEqual(waiting.count, 1_023)
    yield* answered.open
    const exits = yield* Effect.forEach([...requests.slice(1), background], Fiber.await)
    assert.isTrue(exits.every(Exit.isSuccess))
    assert.strictEqual(waiting.count, 0)
    yield* request
  }),
)

// Seen failing: with five seconds' patience nothing was taken back.
it.effect("an operation that is not done in 4 seconds is taken back, and then unavailable", () =>
  Effect.gen(function* () {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })
    yield* Effect.addFinalizer(() => Effect.sync(() => vi.useRealTimers()))
    let takenBack = false
    const slow = Effect.onInterrupt(Effect.never, () => Effect.sync(() => (takenBack = true)))
    const asked = yield* Effect.forkChild(Effect.flip(orUnavailable(slow)), { startImmediately: true })
    vi.advanceTimersByTime(3_999)
    assert.isFalse(takenBack)
    vi.advanceTimersByTime(1)
    assert.instanceOf(yield* Fiber.join(asked), Unavailable)
    assert.isTrue(takenBack)
    assert.strictEqual(yield* orUnavailable(Effect.succeed(1)), 1)
    assert.strictEqual(vi.getTimerCount(), 0)
  }),
)

// Seen failing: without a time of its own it waited for as long as nobody answered.
it.effect("who waits for the answer of another's operation waits 4 seconds, as one of the 1,024", () =>
  Effect.gen(function* () {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })
    yield* Effect.addFinalizer(() => Effect.sync(() => vi.useRealTimers()))
    const waiting = { count: 0 }
    const withdrawn: Array<string> = []
    const ask = (name: string, wait: (done: (answer: Effect.Effect<number>) => void) => void) =>
      answerOrUnavailable<number, never>((done) => {
        wait(done)
        return () => void withdrawn.push(name)
      }).pipe(Effect.provideService(WaitingRequests, waiting))
    const start = { startImmediately: true }
    const forgotten = yield* Effect.forkChild(Effect.flip(ask("forgotten", () => {})), start)
    const gone = yield* Effect.forkChild(
      ask("gone", () => {}),
      start,
    )
    assert.strictEqual(waiting.count, 2)
    yield* Fiber.interrupt(gone)
    vi.advanceTimersByTime(3_999)
    assert.isUndefined(forgotten.pollUnsafe())
    vi.advanceTimersByTime(1)
    assert.instanceOf(yield* Fiber.join(forgotten), Unavailable)
    assert.strictEqual(yield* ask("answered", (done) => queueMicrotask(() => done(Effect.succeed(1)))), 1)
    assert.deepStrictEqual([waiting.count, vi.getTimerCount()], [0, 0])
    assert.deepStrictEqual(withdrawn, ["gone", "forgotten"])
  }),
)
