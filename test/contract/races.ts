import { Effect, Layer } from "effect"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as IdempotencySql from "#src/infrastructure/idempotency/idempotencySql.ts"
import * as EventTypesSql from "#src/infrastructure/webhooks/eventTypesSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/jobSchedulesSql.ts"
import * as KeyCountersSql from "#src/infrastructure/keys/keyCountersSql.ts"
import * as KeyUsageSql from "#src/infrastructure/keys/keyUsageSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as RolesSql from "#src/infrastructure/keys/rolesSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as RetentionSql from "#src/infrastructure/retention/retentionSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as crypto from "../fakes/crypto.ts"
import { databases } from "../support/databases.ts"
import { endpointRaces } from "./webhooks/endpointRaces.ts"
import * as Events from "./webhooks/events.ts"
import { limitRaces } from "./orgs/limitRaces.ts"
import { jobRaces } from "./jobs/jobRaces.ts"
import { orderedRaces } from "./webhooks/orderedRaces.ts"
import { platformRaces } from "./platformRaces.ts"
import { retentionRaces } from "./retention/retentionRaces.ts"

/** Every repository on a PostgreSQL of its own, where two concurrent statements have two sessions. */
export const layer = Layer.mergeAll(
  ApiKeysSql.layer,
  AuditLogSql.layer,
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  DeploymentsSql.layer,
  Events.sql,
  EventsSql.layer,
  EventTypesSql.layer,
  IdempotencySql.layer,
  JobsSql.layer,
  JobSchedulesSql.layer,
  KeyCountersSql.layer,
  KeyUsageSql.layer,
  OrgsSql.layer,
  ProjectsSql.layer,
  RolesSql.layer,
  RetentionSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
).pipe(Layer.provideMerge(crypto.layer), Layer.provideMerge(databases.postgres))

/** One round of a race. Fails when it ends as it must not; returns how it ended. */
export type Race = Effect.Effect<ReadonlyArray<string>, { readonly _tag: string }, Layer.Success<typeof layer>>

/** A race for each pair of writes, by its name. */
export const races: Readonly<Record<string, Race>> = {
  // First: removals take longer, the more rows others have left.
  ...retentionRaces,
  ...platformRaces,
  ...jobRaces,
  ...endpointRaces,
  ...orderedRaces,
  ...limitRaces,
}

/** Runs a race `times` times; returns how often it ended in each way. */
export const run = Effect.fnUntraced(function* (race: Race, times: number) {
  const ends: Record<string, number> = {}
  for (let n = 0; n < times; n++) {
    const end = (yield* race).join(", ")
    ends[end] = (ends[end] ?? 0) + 1
  }
  return ends
})
