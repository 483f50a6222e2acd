import type { Cause } from "effect"
import { Clock, Context, Effect, Layer, Queue, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { TooManyRequests, type Unavailable } from "../Errors.ts"
import type { OrgScope } from "../Principal.ts"

type LiveTopic = "delivery" | "job" | "deployment" | "endpoint"

/** Something that changed. */
interface Change {
  readonly topic: LiveTopic
  readonly orgId: string
  readonly data: Readonly<Record<string, string | number | null>>
}

/** A change as readers get it; `reset` says that changes may be missing. */
export interface LiveEvent {
  readonly id: string
  readonly topic: LiveTopic | "reset"
  readonly orgId: string
  readonly data: Change["data"]
}

/** What a channel brings: between `Up` and `Down` it brings every message that a replica sent. */
export type ChannelNews =
  | { readonly _tag: "Up" }
  | { readonly _tag: "Down" }
  | { readonly _tag: "Message"; readonly payload: string }

/** The channel between replicas. A message has at most `maxMessageLength` characters. */
export class LiveChannel extends Context.Service<
  LiveChannel,
  {
    readonly send: (payloads: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
    readonly news: Stream.Stream<ChannelNews>
  }
>()("gatehouse/domain/LiveFeed/LiveChannel") {}

const maxMessageLength = 7_000
/** Changes that wait to be sent; more are dropped, and readers are told. */
const maxWaitingChanges = 2_000
/** How long changes are collected for one message. */
const collectTime = "100 millis"
/** Events that a replica remembers for readers that come back. */
const maxRemembered = 2_000
/** Events that wait for one reader. A reader that is further behind is dropped. */
const maxQueuedChangesPerReader = 1_000
const maxReaders = 1_000
const maxOrgReaders = 100
/** How often a replica that has readers tells the other replicas, and how long such a notice is valid. */
const readersNoticeInterval = "10 seconds"
const readersNoticeMillis = 30_000
/** No replica needs another notice before: readers that come and go would send one each. */
const noticeRepeatMillis = 1_000
const want = "want"

const tooMany = new TooManyRequests({ error: "Too many readers follow the changes; try again.", retryAfterSeconds: 10 })

interface Reader {
  readonly queue: Queue.Queue<LiveEvent, Cause.Done>
  readonly isFor: (event: LiveEvent) => boolean
  readonly owner: string
}

/** Publishes changes to who watches. They are made only while somebody does. */
export const Publish = Context.Reference<(changes: () => ReadonlyArray<Change>) => void>(
  "gatehouse/domain/LiveFeed/Publish",
  { defaultValue: () => () => {} },
)

/** What changes, as it changes, for people who watch. While nobody watches at any replica, nothing is sent. */
export class LiveFeed extends Context.Service<LiveFeed>()("gatehouse/domain/LiveFeed", {
  make: Effect.gen(function* () {
    const channel = yield* LiveChannel
    const random = yield* SecureRandom.SecureRandom
    const clock = yield* Clock.Clock
    const readers = new Set<Reader>()
    const waiting = yield* Queue.dropping<Change>(maxWaitingChanges)
    const wanted = yield* Queue.sliding<void>(1)
    let remembered: Array<LiveEvent> = []
    let wantedUntil = 0
    let hasDropped = false

    const tell = (event: LiveEvent) => {
      for (const reader of readers) {
        if (event.topic !== "reset" && !reader.isFor(event)) continue
        if (Queue.offerUnsafe(reader.queue, event)) continue
        readers.delete(reader)
        Queue.endUnsafe(reader.queue)
      }
    }
    const reset = () => {
      remembered = []
      tell(resetEvent)
    }
    const receive = (payload: string) => {
      wantedUntil = Math.max(wantedUntil, payload === want ? clock.currentTimeMillisUnsafe() + readersNoticeMillis : 0)
      if (payload === want) return
      const events = JSON.parse(payload) as ReadonlyArray<LiveEvent>
      remembered = [...remembered, ...events].slice(-maxRemembered)
      events.forEach(tell)
    }
    yield* channel.news.pipe(
      Stream.runForEach((news) =>
        Effect.sync(() =>
          news._tag === "Message" ? receive(news.payload) : news._tag === "Down" ? reset() : undefined,
        ),
      ),
      Effect.forkScoped,
    )

    const isWatched = () => readers.size > 0 || clock.currentTimeMillisUnsafe() < wantedUntil
    const send = (payloads: ReadonlyArray<string>) =>
      Effect.catchCause(channel.send(payloads), (cause) => Effect.logDebug("Live changes were not sent", cause))

    const sendBatch = Effect.gen(function* () {
      const first = yield* Queue.take(waiting)
      yield* Effect.sleep(collectTime)
      const changes = [first, ...(yield* Queue.clear(waiting))]
      const events: Array<LiveEvent> = []
      if (hasDropped) events.push({ ...resetEvent, id: yield* random.ulid })
      hasDropped = false
      for (const change of changes) events.push({ id: yield* random.ulid, ...change })
      yield* send(inMessages(events))
    })
    yield* Effect.forkScoped(Effect.forever(sendBatch))
    const sayWanted = Effect.suspend(() => (readers.size === 0 ? Effect.void : send([want])))
    yield* Effect.forkScoped(
      Effect.forever(Effect.andThen(Effect.timeoutOption(Queue.take(wanted), readersNoticeInterval), sayWanted)),
    )

    const admit = (owner: string) => {
      const own = [...readers].filter((reader) => reader.owner === owner).length
      return readers.size < maxReaders && own < maxOrgReaders ? Effect.void : Effect.fail(tooMany)
    }

    return {
      publish: (changes: () => ReadonlyArray<Change>) => {
        if (!isWatched()) return
        for (const change of changes()) hasDropped = !Queue.offerUnsafe(waiting, change) || hasDropped
      },

      /**
       * The events of a scope and of topics, from after the event `after`. A reader counts while the stream runs: a
       * response whose body nobody reads, as that of a HEAD, holds nothing. Ends for a reader that is too slow.
       */
      follow: Effect.fn("LiveFeed.follow")(function* (
        scope: OrgScope,
        topics: ReadonlySet<string>,
        after: string | undefined,
      ) {
        const owner = scope._tag === "OneOrg" ? scope.orgId : ""
        const admitted = Effect.suspend(() => (owner === "" && readers.size < maxReaders ? Effect.void : admit(owner)))
        yield* admitted
        const isFor = ({ orgId, topic }: LiveEvent) =>
          topics.has(topic) && (scope._tag === "EveryOrg" || scope.orgId === orgId)
        const register = Effect.gen(function* () {
          yield* admitted
          const queue = yield* Queue.dropping<LiveEvent, Cause.Done>(maxQueuedChangesPerReader)
          const reader = { queue, isFor, owner }
          const from = remembered.findIndex(({ id }) => id === after)
          const missed = after === undefined || from === -1 ? [resetEvent] : remembered.slice(from + 1)
          for (const event of missed) if (event.topic === "reset" || isFor(event)) Queue.offerUnsafe(queue, event)
          readers.add(reader)
          const sinceNotice = clock.currentTimeMillisUnsafe() + readersNoticeMillis - wantedUntil
          if (sinceNotice >= noticeRepeatMillis) yield* Queue.offer(wanted, undefined)
          return reader
        })
        return Stream.unwrap(
          Effect.acquireRelease(register, (reader) => Effect.sync(() => readers.delete(reader))).pipe(
            Effect.map(({ queue }) => Stream.fromQueue(queue)),
            // Others came between the response's head and its body: the reader tries again, and is told why.
            Effect.catch(() => Effect.succeed(Stream.empty)),
          ),
        )
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(
    Publish,
    Effect.map(this, ({ publish }) => publish),
  ).pipe(Layer.provideMerge(Layer.effect(this, this.make)))
}

const resetEvent: LiveEvent = { id: "", topic: "reset", orgId: "", data: {} }

/** JSON lists of events, each short enough for a message. */
const inMessages = (events: ReadonlyArray<LiveEvent>): ReadonlyArray<string> => {
  const messages: Array<string> = []
  let parts: Array<string> = []
  let length = 0
  for (const event of events) {
    const text = JSON.stringify(event)
    if (parts.length > 0 && length + text.length > maxMessageLength) {
      messages.push(`[${parts.join(",")}]`)
      parts = []
      length = 0
    }
    parts.push(text)
    length += text.length + 1
  }
  return [...messages, `[${parts.join(",")}]`]
}
