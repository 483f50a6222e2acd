import { DateTime, Duration, Effect, Layer } from "effect"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { WebhookWorld } from "./WebhookWorld.ts"

/** Retention in memory. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.map(WebhookWorld, ({ audit, deliveries, events, jobs }) => {
    const deliveriesOf = (event: string) => [...deliveries.values()].filter(({ row }) => row.event_id === event)
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
              deliveriesOf(id).every(({ row }) => row.state !== "pending"),
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
    })
  }),
)
