import { DateTime, Effect, Layer } from "effect"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { WebhookWorld } from "./WebhookWorld.ts"

/** The removal of what is past its time, in memory. */
export const layer = Layer.effect(
  RetentionRepository,
  Effect.map(WebhookWorld, ({ deliveries, events, jobs }) =>
    RetentionRepository.of({
      removeOld: ({ after, before, limit }) =>
        Effect.sync(() => {
          const rows = [...events.values()]
            .filter(({ id }) => id > after)
            .sort((a, b) => (a.id < b.id ? -1 : 1))
            .slice(0, limit)
          let removed = 0
          for (const event of rows) {
            const of = [...deliveries.values()].filter(({ row }) => row.event_id === event.id)
            if (!DateTime.isLessThan(event.createdAt, before) || of.some(({ row }) => row.state === "pending")) continue
            for (const { row } of of) deliveries.delete(row.delivery_id)
            events.delete(event.id)
            if (jobs.get(event.jobId)!.idempotencyKey === null) jobs.delete(event.jobId)
            removed++
          }
          const last = rows.at(-1)
          const goesOn = rows.length === limit && last !== undefined && DateTime.isLessThan(last.createdAt, before)
          return { removed, next: goesOn ? last.id : null }
        }),
    }),
  ),
)
