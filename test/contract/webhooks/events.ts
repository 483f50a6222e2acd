import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"

/** Promise (What an endpoint asks for) */

/** The stored events, including those without a delivery, which no port returns. */
export class Events extends Context.Service<
  Events,
  {
    /** The bodies of the job's events. */
    readonly of: (jobId: string) => Effect.Effect<ReadonlyArray<string>>
  }
>()("gatehouse/test/contract/Events") {}

export const fake = Layer.effect(
  Events,
  Effect.map(WebhookWorld, ({ events }) => ({
    of: (jobId) =>
      Effect.sync(() => [...events.values()].filter((event) => event.jobId === jobId).map(({ body }) => body)),
  })),
)

export const sql = Layer.effect(
  Events,
  Effect.map(SqlClient.SqlClient, (sql) => ({
    of: (jobId) =>
      sql<{ body: string }>`SELECT body FROM events WHERE job_id = ${jobId}`.pipe(
        Effect.map((rows) => rows.map(({ body }) => body)),
        Effect.orDie,
      ),
  })),
)
export const eventsOf = (jobId: string) => Events.use((events) => events.of(jobId))
