import { Cause, Context, DateTime, Duration, Effect, Layer, Schedule } from "effect"
import type { Unavailable } from "./Errors.ts"

/** The request of one batch. */
export interface RetentionBatch {
  /** The id of the last event of the previous batch; `""` for the first batch. */
  readonly after: string
  /** Only events from before this time may be removed. */
  readonly before: DateTime.Utc
  /** The maximum of deliveries of all events together. An event without deliveries counts as one. */
  readonly limit: number
}

/** An event after its retention. */
export interface OldEvent {
  readonly id: string
  /** `null` for an event without a job. */
  readonly jobId: string | null
}

/** Finds and removes events after their retention. */
export class RetentionRepository extends Context.Service<
  RetentionRepository,
  {
    /**
     * The next events from before `before`, oldest first, up to the limit. The first event is included even when it
     * alone has more deliveries. Returns none when there is no older event left.
     */
    readonly findOld: (batch: RetentionBatch) => Effect.Effect<ReadonlyArray<OldEvent>, Unavailable>
    /**
     * Removes those of the events that have no pending delivery, with their deliveries, attempts and finished jobs, in
     * one transaction. Keeps jobs with an idempotency key, which stays valid as long as the job. Skips rows that are
     * locked. Returns the number of removed events; `null` when another replica is removing events.
     */
    readonly remove: (events: ReadonlyArray<OldEvent>) => Effect.Effect<number | null, Unavailable>
    /**
     * Removes the first canceled jobs from before `before`, which have no event, up to `limit`. Keeps jobs with an
     * idempotency key. Returns the number of removed jobs.
     */
    readonly removeCanceled: (before: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
    /**
     * Removes the first entries of the audit log from before `before`, up to `limit`. Returns the number of removed
     * ones.
     */
    readonly removeEntries: (before: DateTime.Utc, limit: number) => Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Retention/RetentionRepository") {}

/** How many days events are kept; `undefined` keeps them forever. */
export const RetentionDays = Context.Reference<number | undefined>("gatehouse/domain/Retention/RetentionDays", {
  defaultValue: () => 90,
})

/** How many days entries of the audit log are kept; `undefined` keeps them forever. */
export const AuditRetentionDays = Context.Reference<number | undefined>(
  "gatehouse/domain/Retention/AuditRetentionDays",
  {
    defaultValue: () => 400,
  },
)

/** Deliveries that one transaction removes, which takes some tens of milliseconds. */
const maxRemovedDeliveries = 2_000
/** Canceled jobs, or entries of the audit log, that one statement removes. */
const maxRemovedRows = 1_000
/** The pause after a batch. It leaves the database to requests and deliveries for most of the time. */
const batchPause = Duration.millis(200)

const logSkipped = ({ id }: OldEvent, cause: Cause.Cause<Unavailable>) =>
  Effect.logWarning("An old event is not removed; the next run tries again", cause).pipe(
    Effect.annotateLogs({ eventId: id }),
  )

/** Removes webhooks, jobs and entries of the audit log after their retention. */
export class Retention extends Context.Service<
  Retention,
  {
    /** Removes all of them after their retention, batch by batch. Returns the number of events. */
    readonly removeOld: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Retention") {
  static readonly layer = Layer.effect(
    Retention,
    Effect.gen(function* () {
      const repository = yield* RetentionRepository
      const [days, auditDays] = [yield* RetentionDays, yield* AuditRetentionDays]

      /** Removes a batch. Returns `undefined` when it fails. */
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

      const removeAll = (remove: (limit: number) => Effect.Effect<number, Unavailable>) =>
        Effect.repeat(remove(maxRemovedRows), {
          while: (removed) => removed === maxRemovedRows,
          schedule: Schedule.spaced(batchPause),
        })

      const removeEvents = Effect.fnUntraced(function* (before: DateTime.Utc) {
        let total = 0
        let limit = maxRemovedDeliveries
        let after = ""
        while (true) {
          const events = yield* repository.findOld({ after, before, limit })
          if (events.length === 0) return total
          const removed = yield* remove(events)
          if (removed === null) return total
          if (removed === undefined && events.length > 1) {
            limit = Math.max(1, Math.floor(Math.min(limit, events.length) / 2))
          } else {
            limit = Math.min(maxRemovedDeliveries, limit * 2)
            after = events.at(-1)!.id
            total += removed ?? 0
          }
          yield* Effect.sleep(batchPause)
        }
      })

      const removeOld = Effect.gen(function* () {
        const now = yield* DateTime.now
        if (auditDays !== undefined) {
          const before = DateTime.subtract(now, { days: auditDays })
          yield* removeAll((limit) => repository.removeEntries(before, limit))
        }
        if (days === undefined) return 0
        const before = DateTime.subtract(now, { days })
        const removed = yield* removeEvents(before)
        yield* removeAll((limit) => repository.removeCanceled(before, limit))
        return removed
      }).pipe(Effect.withSpan("Retention.removeOld"))

      return Retention.of({ removeOld })
    }),
  )
}
