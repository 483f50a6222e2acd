import { Context, Cron, DateTime, Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { firstFiring } from "./cronDates.ts"
import type { LimitReached, Unauthorized, Unavailable } from "../Errors.ts"
import { InvalidRequest, NotFound } from "../Errors.ts"
import type { CreateJobSchedule, JobSchedule } from "./JobSchedule.ts"
import { type JobTemplate, JobTemplates } from "./JobTemplates.ts"
import { type Found, nextCursorIfMore, type Page, type WholeList, wholeListPage } from "../Page.ts"
import { inTurns, type TurnBatch } from "../orgs/Turns.ts"
import { type CurrentPrincipal, currentTenant } from "../Principal.ts"
import { Wakeups } from "../webhooks/Wakeups.ts"

/** A new schedule. `callbackSecret` is encrypted for the schedule's id. */
export interface NewJobSchedule extends JobTemplate {
  readonly scheduleId: string
  readonly orgId: string
  readonly cron: string
  readonly timezone: string
  readonly nextAt: DateTime.Utc
  readonly now: DateTime.Utc
}

/** The request of one batch of due schedules. */
export interface FireBatch extends TurnBatch {
  readonly now: DateTime.Utc
}

/** The result of one batch of due schedules. */
export interface FiredSchedules {
  /** The org of each new job. */
  readonly orgs: ReadonlyArray<string>
  /** The schedules with a new firing time, including those that created no job. */
  readonly moved: number
  readonly next: string | null
}

/** Schedules that one transaction fires. */
const maxFireBatch = 500

/** The schedules of orgs. */
export class JobScheduleRepository extends Context.Service<
  JobScheduleRepository,
  {
    /** Inserts a schedule. Fails when the org has reached its limit of schedules or of stored bytes. */
    readonly insert: (schedule: NewJobSchedule, entry: AuditEntry) => Effect.Effect<void, LimitReached | Unavailable>
    /** Schedules of the org, oldest first. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<JobSchedule>, Unavailable>
    readonly remove: (
      orgId: string,
      scheduleId: string,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Fires the due schedules of a batch in one transaction: creates one job for each and sets its next firing time. Skips
     * schedules that another replica is firing. A schedule creates no job when its org has reached its limit of unfinished
     * jobs or of stored bytes; its next firing time is set all the same.
     */
    readonly fireDue: (batch: FireBatch) => Effect.Effect<FiredSchedules, Unavailable>
  }
>()("gatehouse/domain/JobSchedules/JobScheduleRepository") {}

export const scheduleNotFound = () => new NotFound({ error: "There is no such schedule." })

/**
 * The first firing after a time, in the schedule's time zone. A firing that daylight saving time skips happens as if the
 * clock had not changed. A firing that it repeats happens once, or twice when the hour field is `*`. Fails with a sentence
 * that says what is wrong with the expression or the zone.
 */
export const nextFiring = (
  cron: string,
  timezone: string,
  after: DateTime.Utc,
): Result.Result<DateTime.Utc, string> => {
  const zone = DateTime.zoneFromString(timezone)
  if (zone._tag === "None") return Result.fail("timezone must be an IANA time zone, as in Europe/Berlin")
  const isHourly = cron.trim().split(/\s+/).at(-4)?.startsWith("*") === true
  return Result.match(Cron.parse(cron, zone.value, { onDstOverlap: isHourly ? "both" : "earlier" }), {
    onFailure: (error) => Result.fail(`cron is not a cron expression: ${error.message}`),
    onSuccess: (parsed) => {
      const next = firstFiring(parsed, cron, after)
      return next === undefined ? Result.fail("cron never fires") : Result.succeed(DateTime.fromDateUnsafe(next))
    },
  })
}

/** The schedules of the current tenant, and their firings. */
export class JobSchedules extends Context.Service<
  JobSchedules,
  {
    readonly create: (
      input: typeof CreateJobSchedule.Type,
    ) => Effect.Effect<string, InvalidRequest | LimitReached | Unauthorized | Unavailable, CurrentPrincipal>
    readonly list: (
      asked?: WholeList,
    ) => Effect.Effect<
      { readonly schedules: ReadonlyArray<JobSchedule>; readonly next_cursor?: string },
      Unauthorized | Unavailable,
      CurrentPrincipal
    >
    readonly remove: (
      scheduleId: string,
    ) => Effect.Effect<void, NotFound | Unauthorized | Unavailable, CurrentPrincipal>
    /** Fires all due schedules; orgs take turns. */
    readonly fireDue: Effect.Effect<void, Unavailable>
  }
>()("gatehouse/domain/JobSchedules") {
  static readonly layer = Layer.effect(
    JobSchedules,
    Effect.gen(function* () {
      const repository = yield* JobScheduleRepository
      const templates = yield* JobTemplates
      const random = yield* SecureRandom.SecureRandom
      const wakeups = yield* Wakeups
      const audit = yield* AuditLog

      const create = Effect.fn("JobSchedules.create")(function* (input: typeof CreateJobSchedule.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const timezone = input.timezone ?? "UTC"
        const nextAt = yield* Effect.fromResult(nextFiring(input.cron, timezone, now)).pipe(
          Effect.mapError((error) => new InvalidRequest({ error: `${error}.` })),
        )
        const scheduleId = yield* random.ulid
        const { workflow, cron } = input
        const schedule = {
          ...(yield* templates.prepare(input, scheduleId)),
          scheduleId,
          orgId,
          cron,
          timezone,
          nextAt,
          now,
        }
        const details = { workflow, cron, timezone }
        const entry = yield* audit.entry({ action: "schedule.create", target: scheduleId, details })
        yield* repository.insert(schedule, entry)
        return scheduleId
      })

      const list = Effect.fn("JobSchedules.list")(function* (asked?: WholeList) {
        const orgId = yield* currentTenant
        const found = yield* repository.list(orgId, wholeListPage(asked))
        return { schedules: found.items, ...nextCursorIfMore(found, (schedule) => schedule.schedule_id) }
      })

      const remove = Effect.fn("JobSchedules.remove")(function* (scheduleId: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "schedule.delete", target: scheduleId, details: {} })
        yield* repository.remove(orgId, scheduleId, entry)
      })

      const fireDue = inTurns(
        maxFireBatch,
        Effect.fnUntraced(function* (batch) {
          const { moved, next, orgs } = yield* repository.fireDue({ ...batch, now: yield* DateTime.now })
          yield* Effect.forEach(new Set(orgs), wakeups.jobs, { discard: true })
          return { moved, next }
        }),
      )

      return JobSchedules.of({ create, list, remove, fireDue })
    }),
  )
}
