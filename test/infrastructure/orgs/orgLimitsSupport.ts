import { Effect, Layer, Redacted, Tracer } from "effect"
import { Database } from "#src/infrastructure/database/Database.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as PendingDeliveriesSql from "#src/infrastructure/orgs/pendingDeliveriesSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as RetentionSql from "#src/infrastructure/retention/retentionSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as Usage from "#src/infrastructure/orgs/OrgUsageWorker.ts"
import { findWithUsage } from "../../contract/orgs/orgLimits.ts"
import * as crypto from "../../fakes/crypto.ts"
import { freshPostgres } from "../../support/databases.ts"

let statements = 0
/** Counts the statements that are sent. */
const counting = Tracer.make({
  span: (options) => {
    if (options.kind === "client") statements++
    return new Tracer.NativeSpan(options)
  },
})
/** The number of statements that an effect sends. Nothing else may run beside it. */
export const statementsOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    statements = 0
    return Effect.map(Effect.withTracer(effect, counting), () => statements)
  })

const repositories = Layer.mergeAll(
  ApiKeysSql.layer,
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  OrgsSql.layer,
  PendingDeliveriesSql.layer,
  ProjectsSql.layer,
  RetentionSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
).pipe(
  Layer.provideMerge(OrgUsage.layer),
  // Batches of creations run with the services of the repositories' layer.
  Layer.provide([crypto.layer, Layer.succeed(Tracer.Tracer, counting)]),
)

/** Two replicas on one PostgreSQL: that of the tests, and another. */
let url = ""
export const replica = Layer.suspend(() =>
  Layer.provideMerge(
    Layer.fresh(repositories),
    Layer.fresh(Database.layer({ databaseUrl: Redacted.make(url), dataDir: "unused" })),
  ),
)
export const replicas = Layer.unwrap(
  Effect.map(freshPostgres(), (made) => {
    url = made
    return replica
  }),
)
/** Runs at a replica of its own. Not at the one of the tests, which the memo of layers would return. */
export const atOther = Effect.provide(replica, { local: true })

export const refresh = Effect.flatten(Usage.refreshUsage)

export const usedBy = (orgId: string) => Effect.map(findWithUsage(orgId), ({ used }) => used)
