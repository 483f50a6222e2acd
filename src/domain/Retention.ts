import { Context, DateTime, Duration, Effect, Layer } from "effect"
import type { Unavailable } from "./Errors.ts"
import { removeInBatches } from "./removeInBatches.ts"

/** What expires together: webhooks are events with their deliveries and attempts, and the jobs that have ended. */
export type Records = "webhooks" | "audit"

/** Removes the next rows of an org. Returns how many, and the id after which it continues; `null` at the end. */
type RemoveOfOrg = (
  orgId: string,
  now: DateTime.Utc,
  age: Duration.Duration,
  after: string,
  limit: number,
) => Effect.Effect<{ readonly removed: number; readonly next: string | null }, Unavailable>

/**
 * Removes records after their retention. Records are stored in ranges of the time at which they were made, and a range
 * is removed as a whole when all of it is past the retention.
 *
 * Each of these gives way when other transactions hold a lock for longer than some milliseconds. It is then repeated
 * with the next run.
 */
export class RetentionRepository extends Context.Service<
  RetentionRepository,
  {
    /** Creates the ranges that begin until `range` after `now`. The clock of the database may put it off. */
    readonly prepare: (
      records: Records,
      now: DateTime.Utc,
      range: Duration.Duration,
    ) => Effect.Effect<void, Unavailable>
    /**
     * Removes the oldest range if all of it is from before `now` minus `age`, by this clock and that of the database.
     * An event with a pending delivery stays, with all its deliveries; a range with too many of them stays. Returns the
     * number of removed events or entries; `null` when there was no such range, or it has to wait.
     */
    readonly removeOldest: (
      records: Records,
      now: DateTime.Utc,
      age: Duration.Duration,
    ) => Effect.Effect<number | null, Unavailable>
    /**
     * Removes events that stayed behind their range and have no pending delivery any more, up to `limit`, with their
     * jobs. Returns the number of events.
     */
    readonly removeLeft: (limit: number) => Effect.Effect<number, Unavailable>
    /** The orgs with a retention of their own after an id, in the order of their ids. */
    readonly shorterOrgs: (
      afterOrg: string,
      limit: number,
    ) => Effect.Effect<ReadonlyArray<{ readonly orgId: string; readonly days: number }>, Unavailable>
    /**
     * Reads the next `limit` events of an org after an id that were created before `now` minus `age`, by this clock and
     * that of the database, and removes those without a pending delivery, with their jobs.
     */
    readonly removeOfOrg: RemoveOfOrg
    /** Reads the next `limit` jobs of an org after an id; removes those that ended before then without an event. */
    readonly removeJobsOfOrg: RemoveOfOrg
  }
>()("gatehouse/domain/Retention/RetentionRepository") {}

/** How many days things are kept if no setting says otherwise. */
export const defaultRetentionDays = 90
export const defaultAuditRetentionDays = 400

/** How many days events are kept; `undefined` keeps them forever. */
export const RetentionDays = Context.Reference<number | undefined>("gatehouse/domain/Retention/RetentionDays", {
  defaultValue: () => defaultRetentionDays,
})

/** How many days entries of the audit log are kept; `undefined` keeps them forever. */
export const AuditRetentionDays = Context.Reference<number | undefined>(
  "gatehouse/domain/Retention/AuditRetentionDays",
  {
    defaultValue: () => defaultAuditRetentionDays,
  },
)

/** Ranges in the time that records are kept: each statement that reads all of them pays for each. */
const rangesKept = 12
/** The shortest range. */
const minRange = Duration.hours(1)
/** Rows that one statement removes. */
const maxRemovedRows = 1_000
/** Events that one transaction removes beside requests of their org, and orgs that are read at a time. */
const [maxRemovedOfOrg, orgsPerLook] = [100, 100]

/** Removes webhooks, finished jobs and entries of the audit log after their retention. */
export class Retention extends Context.Service<Retention>()("gatehouse/domain/Retention", {
  make: Effect.gen(function* () {
    const repository = yield* RetentionRepository
    const [days, auditDays] = [yield* RetentionDays, yield* AuditRetentionDays]

    const removeRanges = Effect.fnUntraced(function* (records: Records, days: number, now: DateTime.Utc) {
      const age = Duration.days(days)
      yield* repository.prepare(records, now, Duration.max(minRange, Duration.divideUnsafe(age, rangesKept)))
      let total = 0
      let removed: number | null = 0
      while (removed !== null) {
        removed = yield* repository.removeOldest(records, now, age)
        total += removed ?? 0
      }
      return total
    })

    const removeOfOrg = Effect.fnUntraced(function* (orgId: string, now: DateTime.Utc, age: Duration.Duration) {
      let total = 0
      for (const remove of [repository.removeOfOrg, repository.removeJobsOfOrg]) {
        let after: string | null = ""
        while (after !== null) {
          const { next, removed }: Effect.Success<ReturnType<RemoveOfOrg>> = yield* remove(
            orgId,
            now,
            age,
            after,
            maxRemovedOfOrg,
          )
          total += removed
          after = next
        }
      }
      return total
    })

    return {
      /** Prepares the next ranges, and removes everything after its retention. Returns the number of events. */
      removeOld: Effect.gen(function* () {
        const now = yield* DateTime.now
        if (auditDays !== undefined) yield* removeRanges("audit", auditDays, now)
        if (days === undefined) return 0
        const removed = yield* removeRanges("webhooks", days, now)
        yield* removeInBatches(maxRemovedRows, repository.removeLeft)
        return removed
      }).pipe(Effect.withSpan("Retention.removeOld")),

      /** Removes events and finished jobs of orgs with a shorter retention of their own. Returns their number. */
      removeOfOrgs: Effect.gen(function* () {
        const now = yield* DateTime.now
        let total = 0
        let orgs = yield* repository.shorterOrgs("", orgsPerLook)
        while (orgs.length > 0) {
          for (const org of orgs.filter((org) => days === undefined || org.days < days)) {
            // An org that cannot be changed now, as after a move, must not stop the others.
            total += yield* removeOfOrg(org.orgId, now, Duration.days(org.days)).pipe(
              Effect.catch(({ error }) =>
                Effect.as(Effect.logWarning(`Old events of an org are not removed: ${error}`), 0),
              ),
            )
          }
          orgs = yield* repository.shorterOrgs(orgs.at(-1)!.orgId, orgsPerLook)
        }
        return total
      }).pipe(Effect.withSpan("Retention.removeOfOrgs")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
