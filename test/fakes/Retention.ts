import { DateTime, Duration, Effect, Layer } from "effect"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { WebhookWorld } from "./WebhookWorld.ts"
import { World } from "./World.ts"

/** Retention in memory. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.map(Effect.all([WebhookWorld, World]), ([{ audit, deliveries, events, jobs }, { retentionDays }]) => {
    const deliveriesOf = (event: string) => [...deliveries.values()].filter(({ row }) => row.event_id === event)
    const isOld = (time: DateTime.Utc | null, before: DateTime.Utc) =>
      time !== null && DateTime.isLessThan(time, before)
    let rangeMillis = 1
    const endOfRange = (time: DateTime.Utc) =>
      DateTime.makeUnsafe((Math.floor(DateTime.toEpochMillis(time) / rangeMillis) + 1) * rangeMillis)
    return RetentionRepository.of({
      prepare: (_records, _now, range) => Effect.sync(() => void (rangeMillis = Duration.toMillis(range))),

      removeOldest: (records, now, age) =>
        Effect.sync(() => {
          const before = DateTime.subtractDuration(now, age)
          if (records === "audit") {
            const old = [...audit.values()].filter(({ row }) =>
              DateTime.isLessThanOrEqualTo(endOfRange(row.at), before),
            )
            for (const { row } of old) audit.delete(row.id)
            return old.length === 0 ? null : old.length
          }
          const old = [...events.values()].filter(
            ({ createdAt, id }) =>
              DateTime.isLessThanOrEqualTo(endOfRange(createdAt), before) &&
              deliveriesOf(id).every(({ claimId, row }) => row.state !== "pending" && claimId === null),
          )
          for (const { id } of old) {
            for (const { row } of deliveriesOf(id)) deliveries.delete(row.delivery_id)
            events.delete(id)
          }
          const withEvent = new Set([...events.values()].map(({ jobId }) => jobId))
          for (const { row } of jobs.values()) {
            const isOld = row.finished_at !== null && DateTime.isLessThanOrEqualTo(endOfRange(row.finished_at), before)
            if (isOld && !withEvent.has(row.job_id)) jobs.delete(row.job_id)
          }
          return old.length === 0 ? null : old.length
        }),

      removeLeft: () => Effect.succeed(0),

      shorterOrgs: (after) =>
        Effect.sync(() =>
          [...retentionDays].flatMap(([orgId, days]) => (days === null || orgId <= after ? [] : [{ orgId, days }])),
        ),

      removeOfOrg: (orgId, now, age) =>
        Effect.sync(() => {
          const before = DateTime.subtractDuration(now, age)
          const old = [...events.values()].filter(
            (event) =>
              event.orgId === orgId &&
              isOld(event.createdAt, before) &&
              deliveriesOf(event.id).every(({ claimId, row }) => row.state !== "pending" && claimId === null),
          )
          for (const { id, jobId } of old) {
            if (jobId !== null) jobs.delete(jobId)
            for (const { row } of deliveriesOf(id)) deliveries.delete(row.delivery_id)
            events.delete(id)
          }
          return { removed: old.length, next: null }
        }),

      removeJobsOfOrg: (orgId, now, age) =>
        Effect.sync(() => {
          const before = DateTime.subtractDuration(now, age)
          const withEvent = new Set([...events.values()].map(({ jobId }) => jobId))
          const ended = [...jobs.values()].filter(
            ({ orgId: org, row }) => org === orgId && isOld(row.finished_at, before) && !withEvent.has(row.job_id),
          )
          for (const { row } of ended) jobs.delete(row.job_id)
          return { removed: ended.length, next: null }
        }),
    })
  }),
)
