import { Cause, Context, DateTime, Duration, Effect, Layer } from "effect"
import type { Unavailable } from "./Errors.ts"

/** What a batch looks at. */
export interface RetentionBatch {
  /** The id of the event to go on after; `""` for the first batch. */
  readonly after: string
  /** What is older may go. */
  readonly before: DateTime.Utc
  /** How many deliveries the events may have together; an event without any counts as one. */
  readonly limit: number
}

/** An event that is old. */
export interface OldEvent {
  readonly id: string
  readonly jobId: string
}

/** Where what is past its time is removed. */
export class RetentionRepository extends Context.Service<
  RetentionRepository,
  {
    /**
     * The next events that were made before `before`, oldest first: as many as the limit allows, and one at least, which may
     * have more deliveries than that. None when there is no older one left.
     */
    readonly findOld: (batch: RetentionBatch) => Effect.Effect<ReadonlyArray<OldEvent>, Unavailable>
    /**
     * Removes these events where no delivery is pending, with their deliveries, attempts and finished jobs, all or nothing.
     * A job with an idempotency key stays, for the key holds as long. What is being changed at the moment stays for a later
     * time. Returns how many events it removed; `null` when another replica is removing some.
     */
    readonly remove: (events: ReadonlyArray<OldEvent>) => Effect.Effect<number | null, Unavailable>
  }
>()("gatehouse/domain/Retention/RetentionRepository") {}

/** For how many days events are kept; `undefined`: for good. */
export const RetentionDays = Context.Reference<number | undefined>("gatehouse/domain/Retention/RetentionDays", {
  defaultValue: () => 90,
})

/** How many deliveries are removed in one transaction: few enough to be done in some tens of milliseconds. */
const batchSize = 2_000
/** Between two batches, so that requests and deliveries have the database to themselves for most of the time. */
const pause = Duration.millis(200)

const logSkipped = ({ id }: OldEvent, cause: Cause.Cause<Unavailable>) =>
  Effect.logWarning("An old event is not removed; it is tried again next time", cause).pipe(
    Effect.annotateLogs({ eventId: id }),
  )

/** Ends what is kept of webhooks and jobs when it is past its time. */
export class Retention extends Context.Service<
  Retention,
  {
    /** Removes everything that may go by now, batch by batch; returns how many events that was. */
    readonly removeOld: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Retention") {
  static readonly layer = Layer.effect(
    Retention,
    Effect.gen(function* () {
      const repository = yield* RetentionRepository
      const days = yield* RetentionDays
      if (days === undefined) return Retention.of({ removeOld: Effect.succeed(0) })

      /** Removes a batch; one that fails is `undefined`, whatever the reason. */
      const remove = (events: ReadonlyArray<OldEvent>) =>
        repository
          .remove(events)
          .pipe(
            Effect.catchCause((cause) =>
              Cause.hasInterruptsOnly(cause)
                ? Effect.failCause(cause)
                : Effect.as(events.length > 1 ? Effect.void : logSkipped(events[0]!, cause), undefined),
            ),
          )

      const removeOld = Effect.gen(function* () {
        const before = DateTime.subtract(yield* DateTime.now, { days })
        let total = 0
        let limit = batchSize
        let after = ""
        while (true) {
          const events = yield* repository.findOld({ after, before, limit })
          if (events.length === 0) return total
          const removed = yield* remove(events)
          if (removed === null) return total
          if (removed === undefined && events.length > 1) {
            limit = Math.max(1, Math.floor(Math.min(limit, events.length) / 2))
          } else {
            limit = Math.min(batchSize, limit * 2)
            after = events.at(-1)!.id
            total += removed ?? 0
          }
          yield* Effect.sleep(pause)
        }
      }).pipe(Effect.withSpan("Retention.removeOld"))

      return Retention.of({ removeOld })
    }),
  )
}
