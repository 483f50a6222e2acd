import type { Scope } from "effect"
import { Context, Data, Effect, Queue, Schedule, Stream } from "effect"

/** What a listener is told. Between `Up` and the next `Down` every notification committed reaches it. */
export type Notification = Data.TaggedEnum<{
  /** Hearing, from here on. */
  Up: {}
  /** Not hearing for sure; what is notified now may be missed. */
  Down: {}
  Message: { readonly payload: string }
}>
export const Notification = Data.taggedEnum<Notification>()

/**
 * Begins to hear a channel: succeeds once the database has confirmed it, with an effect that takes the next payload and
 * fails as soon as hearing is no longer sure.
 */
export type Subscribe<E> = (channel: string) => Effect.Effect<Effect.Effect<string, E>, E, Scope.Scope>

/**
 * Notifications of the database, sent by SQL in the transaction they tell of: `SELECT pg_notify(channel, payload)`.
 * A payload is at most 8,000 bytes.
 */
export class Notifications extends Context.Service<
  Notifications,
  {
    /**
     * Hears a channel for as long as the stream runs, and comes back by itself: `Up`, the messages, `Down`, `Up` …
     * Until the first `Up` it is down. A connection gone silent is noticed within 10 seconds.
     */
    readonly listen: (channel: string) => Stream.Stream<Notification>
  }
>()("gatehouse/infrastructure/Notifications") {}

/** The service over a backend's way to hear one channel. */
export const make = <E extends Error>(subscribe: Subscribe<E>) =>
  Notifications.of({
    listen: (channel) =>
      Stream.callback<Notification>((told) => {
        const untilLost = Effect.gen(function* () {
          const next = yield* subscribe(channel)
          yield* Queue.offer(told, Notification.Up())
          return yield* next.pipe(
            Effect.flatMap((payload) => Queue.offer(told, Notification.Message({ payload }))),
            Effect.forever,
            // Before the scope closes: that may take its time.
            Effect.ensuring(Queue.offer(told, Notification.Down())),
            Effect.tapError(({ message }) => Effect.logWarning(`Not hearing ${channel}, listening again: ${message}`)),
          )
        })
        return Effect.scoped(untilLost).pipe(
          Effect.catchCause((cause) => Effect.logDebug(`Not hearing ${channel}; trying again`, cause)),
          Effect.repeat(Schedule.jittered(Schedule.spaced("1 second"))),
        )
      }),
  })
