import type { Cause, Queue, Scope } from "effect"
import { Context, Data, Effect, Queue as Queues, Schedule, Stream } from "effect"

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
 * Begins to hear a channel: succeeds once the database has confirmed it, with a queue of payloads that fails as soon as
 * hearing is no longer sure.
 */
export type Subscribe<E> = (channel: string) => Effect.Effect<Queue.Dequeue<string, E>, E, Scope.Scope>

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
export const make = <E>(subscribe: Subscribe<E>) =>
  Notifications.of({
    listen: (channel) =>
      Stream.callback<Notification>((told) => {
        const once = Effect.scoped(
          Effect.gen(function* () {
            const heard = yield* subscribe(channel)
            yield* Effect.logDebug(`Hearing ${channel}`)
            yield* Queues.offer(told, Notification.Up())
            yield* Queues.take(heard).pipe(
              Effect.flatMap((payload) => Queues.offer(told, Notification.Message({ payload }))),
              Effect.forever,
              // Before the scope closes: that may take its time.
              Effect.ensuring(Queues.offer(told, Notification.Down())),
            )
          }),
        )
        return once.pipe(
          Effect.catchCause((cause: Cause.Cause<E>) => Effect.logWarning(`Not hearing ${channel}; trying again`, cause)),
          Effect.repeat(Schedule.jittered(Schedule.spaced("1 second"))),
        )
      }),
  })
