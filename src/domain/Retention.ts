import { Context, DateTime, Duration, Effect, Layer } from "effect"
import type { Unavailable } from "./Errors.ts"

/** What a batch looks at. */
export interface RetentionBatch {
  /** The id of the event to go on after; `""` for the first batch. */
  readonly after: string
  /** What is older may go. */
  readonly before: DateTime.Utc
  /** How many events are looked at. */
  readonly limit: number
}

/** Where what is past its time is removed. */
export class RetentionRepository extends Context.Service<
  RetentionRepository,
  {
    /**
     * Looks at the next events, oldest first, and removes those made before `before` of which no delivery is pending,
     * with their deliveries, attempts and finished jobs, all or nothing. A job with an idempotency key stays, for the key
     * holds as long. What is being changed at the moment stays for a later time. Gives how many events went, and the id
     * to go on after; `null` when there is nothing older left to look at, or another replica is at it.
     */
    readonly removeOld: (
      batch: RetentionBatch,
    ) => Effect.Effect<{ readonly removed: number; readonly next: string | null }, Unavailable>
  }
>()("gatehouse/domain/Retention/RetentionRepository") {}

/** For how many days events are kept; `undefined`: for good. */
export const RetentionDays = Context.Reference<number | undefined>("gatehouse/domain/Retention/RetentionDays", {
  defaultValue: () => 90,
})

/** How many events are looked at in one transaction: few enough to be done in some ten milliseconds. */
const batch = 500
/** Between two batches, so that requests and deliveries have the database to themselves for most of the time. */
const pause = Duration.millis(200)

/** Ends what is kept of webhooks and jobs when it is past its time. */
export class Retention extends Context.Service<
  Retention,
  {
    /** Removes everything that may go by now, batch by batch; gives how many events that was. */
    readonly removeOld: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/Retention") {
  static readonly layer = Layer.effect(
    Retention,
    Effect.gen(function* () {
      const repository = yield* RetentionRepository
      const days = yield* RetentionDays
      if (days === undefined) return Retention.of({ removeOld: Effect.succeed(0) })

      const removeOld = Effect.gen(function* () {
        const before = DateTime.subtract(yield* DateTime.now, { days })
        let total = 0
        let after: string | null = ""
        while (after !== null) {
          if (after !== "") yield* Effect.sleep(pause)
          const { next, removed }: { readonly next: string | null; readonly removed: number } =
            yield* repository.removeOld({ after, before, limit: batch })
          total += removed
          after = next
        }
        return total
      }).pipe(Effect.withSpan("Retention.removeOld"))

      return Retention.of({ removeOld })
    }),
  )
}
