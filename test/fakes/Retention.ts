import { DateTime, Effect, Layer } from "effect"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { WebhookWorld } from "./WebhookWorld.ts"

/** Retention in memory. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.map(WebhookWorld, ({ audit, deliveries, events, jobs }) => {
    const deliveriesOf = (event: string) => [...deliveries.values()].filter(({ row }) => row.event_id === event)
    return RetentionRepository.of({
      findOld: ({ after, before, limit }) =>
        Effect.sync(() => {
          let rows = 0
          return [...events.values()]
            .filter(({ createdAt, id }) => id > after && DateTime.isLessThan(createdAt, before))
            .sort((a, b) => (a.id < b.id ? -1 : 1))
            .filter(({ id }, n) => {
              rows += Math.max(1, deliveriesOf(id).length)
              return n === 0 || rows <= limit
            })
            .map(({ id, jobId }) => ({ id, jobId }))
        }),

      remove: (old) =>
        Effect.sync(() => {
          const removed = old.filter(
            ({ id }) => events.has(id) && deliveriesOf(id).every(({ row }) => row.state !== "pending"),
          )
          for (const { id, jobId } of removed) {
            for (const { row } of deliveriesOf(id)) deliveries.delete(row.delivery_id)
            events.delete(id)
            if (jobId !== null && jobs.get(jobId)!.idempotencyKey === null) jobs.delete(jobId)
          }
          return removed.length
        }),

      removeCanceled: (before, limit) =>
        Effect.sync(() => {
          const old = [...jobs.values()].filter(
            ({ idempotencyKey, row }) =>
              row.status === "canceled" && idempotencyKey === null && DateTime.isLessThan(row.finished_at!, before),
          )
          for (const { row } of old.slice(0, limit)) jobs.delete(row.job_id)
          return Math.min(old.length, limit)
        }),

      removeEntries: (before, limit) =>
        Effect.sync(() => {
          const first = [...audit.values()].map(({ row }) => row).toSorted((a, b) => (a.id < b.id ? -1 : 1))
          const old = first.slice(0, limit).filter(({ at }) => DateTime.isLessThan(at, before))
          for (const { id } of old) audit.delete(id)
          return old.length
        }),
    })
  }),
)
