import type { Scope } from "effect"
import { Context, Data, Effect, Queue, Schedule, Stream } from "effect"

/** An element of a listener's stream. Between `Up` and the next `Down` it receives every committed notification. */
export type Notification = Data.TaggedEnum<{
  /** The listener receives notifications from now on. */
  Up: {}
  /** The listener may miss notifications from now on. */
  Down: {}
  Message: { readonly payload: string }
  /**
   * Everything that was committed before this time of the monotonic clock, in milliseconds, has arrived before this
   * element.
   */
  Proof: { readonly sentAt: number }
}>
export const Notification = Data.taggedEnum<Notification>()

/** How a channel is listened to. */
export interface ListenOptions {
  /**
   * Whether the stream has proofs that it is current. A proof is a notification of this process on the same channel,
   * sent twice a second: it arrives after every notification that was committed before it was sent.
   */
  readonly proofs?: boolean
}

/**
 * Listens to a channel. Succeeds after the database has confirmed it. Returns an effect that takes the next message or
 * proof, and fails as soon as notifications may be missed.
 */
export type Subscribe<E> = (
  channel: string,
  options: ListenOptions,
) => Effect.Effect<Effect.Effect<Notification, E>, E, Scope.Scope>

/**
 * Notifications of the database. A transaction sends them with `SELECT pg_notify(channel, payload)`, with a payload of
 * at most 8,000 bytes.
 */
export class Notifications extends Context.Service<
  Notifications,
  {
    /**
     * Listens to a channel while the stream runs, and reconnects when the connection is lost. Emits `Up` after each
     * connect, then the messages, and `Down` after each loss. The stream starts without a connection. It detects a dead
     * connection within 10 seconds.
     */
    readonly listen: (channel: string, options?: ListenOptions) => Stream.Stream<Notification>
  }
>()("gatehouse/infrastructure/Notifications") {}

/** Makes the service from a backend's `subscribe`. */
export const make = <E extends Error>(subscribe: Subscribe<E>) =>
  Notifications.of({
    listen: (channel, options = {}) =>
      Stream.callback<Notification>((queue) => {
        const untilLost = Effect.gen(function* () {
          const next = yield* subscribe(channel, options)
          yield* Queue.offer(queue, Notification.Up())
          return yield* next.pipe(
            Effect.flatMap((notification) => Queue.offer(queue, notification)),
            Effect.forever,
            // Sent before the scope closes, because closing may take long.
            Effect.ensuring(Queue.offer(queue, Notification.Down())),
            Effect.tapError(({ message }) =>
              Effect.logWarning(`The connection that listens to ${channel} is lost; reconnecting: ${message}`),
            ),
          )
        })
        return Effect.scoped(untilLost).pipe(
          Effect.catchCause((cause) => Effect.logDebug(`Cannot listen to ${channel}; retrying`, cause)),
          Effect.repeat(Schedule.jittered(Schedule.spaced("1 second"))),
        )
      }),
  })
