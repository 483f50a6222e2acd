import { expect } from "@effect/vitest"
import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Deferred, Effect, Fiber, Layer, Queue, Stream } from "effect"
import { TestClock } from "effect/testing"
import { type ChannelNews, LiveChannel, LiveFeed, type LiveEvent } from "#src/domain/activity/LiveFeed.ts"
import { OrgScope } from "#src/domain/Principal.ts"
import { secureRandom } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { it } from "../../support/it.ts"

let sent: Array<string> = []

/** A channel whose only replica hears what it sends, as over the database. */
const channel = Layer.effect(
  LiveChannel,
  Effect.gen(function* () {
    const news = yield* Queue.unbounded<ChannelNews>()
    return LiveChannel.of({
      send: (payloads) => {
        sent.push(...payloads)
        return Effect.asVoid(
          Queue.offerAll(
            news,
            payloads.map((payload) => ({ _tag: "Message" as const, payload })),
          ),
        )
      },
      news: Stream.fromQueue(news),
    })
  }),
)
const world = LiveFeed.layer.pipe(
  Layer.provide(Layer.mergeAll(channel, secureRandom.pipe(Layer.provideMerge(NodeCrypto.layer)))),
)

const topics = new Set(["job"])
const change = (n: number) => ({ topic: "job" as const, orgId: "a", data: { n } })
const everyOrg = OrgScope.EveryOrg()
const numbers = (events: ReadonlyArray<LiveEvent>) =>
  events.flatMap(({ data, topic }) => (topic === "job" ? [data["n"]] : []))

/** Whether a change would be made. */
const isWatched = ({ publish }: LiveFeed["Service"]) => {
  let isMade = false
  publish(() => {
    isMade = true
    return []
  })
  return isMade
}

/** Publishes so many changes, at most as many at once as may wait. */
const publish = Effect.fnUntraced(function* (count: number) {
  const feed = yield* LiveFeed
  for (let n = 0; n < count; n += 500) {
    feed.publish(() => Array.from({ length: Math.min(500, count - n) }, (_, at) => change(n + at)))
    yield* TestClock.adjust("100 millis")
  }
})

it.effect("a reader that is 1,000 events behind is dropped, and one that reads is not", () =>
  Effect.gen(function* () {
    const feed = yield* LiveFeed
    const slow = yield* feed.follow(everyOrg, topics, undefined)
    const fast = yield* feed.follow(everyOrg, topics, undefined)
    const read: Array<LiveEvent> = []
    yield* Effect.forkScoped(Stream.runForEach(fast, (event) => Effect.sync(() => read.push(event))))
    const goOn = yield* Deferred.make<void>()
    const slowRead: Array<LiveEvent> = []
    const reading = yield* Effect.forkScoped(
      Stream.runForEach(slow, (event) =>
        Effect.andThen(
          Deferred.await(goOn),
          Effect.sync(() => void slowRead.push(event)),
        ),
      ),
    )
    yield* TestClock.adjust("1 millis")
    yield* publish(3_000)
    expect(numbers(read)).toEqual(Array.from({ length: 3_000 }, (_, n) => n))
    // Its stream ends after what it had taken and what fitted.
    yield* Deferred.succeed(goOn, undefined)
    yield* Fiber.join(reading)
    const kept = numbers(slowRead)
    expect(slowRead[0]!.topic).toBe("reset")
    expect(kept).toEqual(Array.from({ length: kept.length }, (_, n) => n))
    expect(kept.length).toBeLessThan(3_000)
  }).pipe(Effect.scoped, Effect.provide(world)),
)

// Seen failing: each answer to a HEAD counted as a reader for ever, and 1,000 of them refused everybody.
it.effect("an answer whose events nobody reads is no reader", () =>
  Effect.gen(function* () {
    const feed = yield* LiveFeed
    const own = OrgScope.OneOrg({ orgId: "a" })
    for (let n = 0; n < 1_001; n++) yield* Effect.asVoid(feed.follow(own, topics, undefined))
    expect(isWatched(feed)).toBe(false)
  }).pipe(Effect.scoped, Effect.provide(world)),
)

// Seen failing: 50 notices, each of which every replica hears.
it.effect("readers that come and go tell the other replicas once a second", () =>
  Effect.gen(function* () {
    const feed = yield* LiveFeed
    sent = []
    for (let n = 0; n < 50; n++) {
      const reader = yield* Effect.forkScoped(Stream.runDrain(yield* feed.follow(everyOrg, topics, undefined)))
      yield* TestClock.adjust("1 millis")
      yield* Fiber.interrupt(reader)
    }
    expect(sent).toEqual(["want"])
    yield* TestClock.adjust("1 second")
    yield* Effect.forkScoped(Stream.runDrain(yield* feed.follow(everyOrg, topics, undefined)))
    yield* TestClock.adjust("1 millis")
    expect(sent).toEqual(["want", "want"])
  }).pipe(Effect.scoped, Effect.provide(world)),
)

it.effect("an org has at most 100 readers, and the end of one makes room for the next", () =>
  Effect.gen(function* () {
    const feed = yield* LiveFeed
    const own = OrgScope.OneOrg({ orgId: "a" })
    const follow = feed.follow(own, topics, undefined)
    const read = Effect.flatMap(follow, (events) => Effect.forkScoped(Stream.runDrain(events)))
    const [first] = yield* Effect.replicateEffect(read, 100)
    yield* TestClock.adjust("1 millis")
    expect(yield* Effect.flip(follow)).toMatchObject({ retryAfterSeconds: 10 })
    yield* Effect.asVoid(feed.follow(OrgScope.OneOrg({ orgId: "b" }), topics, undefined))
    yield* Fiber.interrupt(first!)
    yield* Effect.asVoid(follow)
  }).pipe(Effect.scoped, Effect.provide(world)),
)

it.effect("nothing is remembered while nobody watches, and for 30 seconds after the last reader has left it is", () =>
  Effect.gen(function* () {
    const feed = yield* LiveFeed
    expect(isWatched(feed)).toBe(false)
    yield* publish(1)
    const reader = yield* feed.follow(everyOrg, topics, undefined)
    const read: Array<string> = []
    const reading = yield* Effect.forkScoped(
      Stream.runForEach(reader, ({ topic }) => Effect.sync(() => read.push(topic))),
    )
    yield* Effect.repeat(Effect.yieldNow, { times: 20 })
    yield* Fiber.interrupt(reading)
    expect(read).toEqual(["reset"])
    expect(isWatched(feed)).toBe(true)
    yield* TestClock.adjust("31 seconds")
    expect(isWatched(feed)).toBe(false)
  }).pipe(Effect.scoped, Effect.provide(world)),
)
