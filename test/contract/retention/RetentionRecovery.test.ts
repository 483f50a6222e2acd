import { assert, layer } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/DeliveryQueueRepository.ts"
import * as JobsSql from "#src/infrastructure/jobs/JobRepository.ts"
import * as OrgsSql from "#src/infrastructure/orgs/OrgRepository.ts"
import * as RetentionSql from "#src/infrastructure/retention/RetentionRepository.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/WebhookEndpointRepository.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { removeOld } from "./retention.ts"
import { attempt, claim, epoch, insertReceiver, plus, record } from "../webhooks/webhookSupport.ts"

const sql = Layer.mergeAll(
  DeliveryQueueSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  RetentionSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer))

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(sql, database), { excludeTestServices: true })(name, (it) => {
    // Seen failing when retention only read the state of the row.
    it.effect(
      "retention keeps the deliveries that a recovery includes, before and after the recovery reaches them",
      () =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const now = epoch()
          const { orgId, endpoint } = yield* insertReceiver(now)
          const [delivery] = yield* claim(now)
          yield* record([attempt(delivery!, "Exhausted", now)], now)
          const at = DateTime.toDateUtc(now)
          yield* sql`
          INSERT INTO sweeps (id, org_id, kind, endpoint_id, since, created_at)
          VALUES ('s', ${orgId}, 'recover', ${endpoint}, ${at}, ${at})`
          assert.strictEqual(yield* removeOld(plus(now, 1)), 0)
          yield* sql`DELETE FROM sweeps`
          assert.strictEqual(yield* removeOld(plus(now, 1)), 1)
        }),
    )
  })
}
