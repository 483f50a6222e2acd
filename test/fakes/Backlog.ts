import { DateTime, Effect, Layer } from "effect"
import { Backlog } from "#src/domain/webhooks/Backlog.ts"
import { WebhookWorld } from "./WebhookWorld.ts"

/** The backlog in memory. */
export const layer = Layer.effect(
  Backlog,
  Effect.map(WebhookWorld, ({ deliveries }) =>
    Backlog.of({
      due: (now, limit) =>
        Effect.sync(() => {
          const due = [...deliveries.values()]
            .filter(({ row }) => row.state === "pending")
            .flatMap(({ dueAt }) => (dueAt === null ? [] : [dueAt]))
            .filter((dueAt) => DateTime.isLessThanOrEqualTo(dueAt, now))
            .sort((a, b) => DateTime.toEpochMillis(a) - DateTime.toEpochMillis(b))
          return { count: Math.min(due.length, limit), oldestDueAt: due[0] ?? null }
        }),
    }),
  ),
)
