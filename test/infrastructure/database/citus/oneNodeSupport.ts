import { Effect, Layer, Redacted } from "effect"
import { shardOf } from "#src/infrastructure/database/shards.ts"
import { Database } from "#src/infrastructure/database/Database.ts"
import * as IdempotencySql from "#src/infrastructure/idempotency/IdempotencyRepository.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/ApiKeyRepository.ts"
import * as JobSchedulesSql from "#src/infrastructure/jobs/JobScheduleRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/SweepRepository.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/DeliveryLogRepository.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/DeliveryQueueRepository.ts"
import * as EventsSql from "#src/infrastructure/webhooks/EventRepository.ts"
import * as SigningKeysSql from "#src/infrastructure/webhooks/SigningKeyRepository.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/WebhookEndpointRepository.ts"
import { insertOrg } from "../../../contract/support.ts"
import * as crypto from "../../../fakes/crypto.ts"
import { freshCitusNodes } from "../../../support/citus.ts"

const repositories = Layer.mergeAll(
  ApiKeysSql.layer,
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  EventsSql.layer,
  IdempotencySql.layer,
  JobSchedulesSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  SigningKeysSql.layer,
  SweepsSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provideMerge(OrgUsage.layer), Layer.provide(crypto.layer))

/** The repositories on a fresh distributed database, and the URLs of its nodes, the coordinator first. */
export const start = Effect.fnUntraced(function* (shards: "one" | "three") {
  const nodes = yield* freshCitusNodes(shards)
  const database = Database.layer({ databaseUrl: Redacted.make(nodes[0]!), dataDir: "unused" })
  const context = yield* Layer.build(Layer.provideMerge(repositories, database))
  return { nodes, context }
})

/** A new org in one of three shards. */
export const orgIn = (shard: number) =>
  Effect.gen(function* () {
    while (true) {
      const { orgId } = yield* insertOrg()
      if (shardOf(orgId, 3) === shard) return orgId
    }
  })
