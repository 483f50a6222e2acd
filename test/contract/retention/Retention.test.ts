import { assert } from "@effect/vitest"
import { Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeliveryLogSql from "#src/infrastructure/webhooks/deliveryLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as EventsSql from "#src/infrastructure/webhooks/eventsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as RetentionSql from "#src/infrastructure/retention/retentionSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/webhooks.ts"
import { layer } from "../../support/it.ts"
import { newEntry, newId } from "../support.ts"
import { databases } from "../../support/databases.ts"
import { attempt, claim, deliveriesOf, plus, record, recover } from "../webhooks/webhookSupport.ts"
import { insertEvents, nextTime, prepare, removeOld, retention } from "./retention.ts"

/**
 * Promise (Retention): What expires by age is dropped as a whole; an event with a pending delivery stays with its job,
 * and so does an idempotency key as long as its event or job; clocks that are far off and a stop of a month lose
 * nothing.
 */

const sql = Layer.mergeAll(
  AuditLogSql.layer,
  DeliveryLogSql.layer,
  DeliveryQueueSql.layer,
  EventsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  RetentionSql.layer,
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer))

layer(fakes.layer, { excludeTestServices: true })("fake", retention)

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(sql, database), { excludeTestServices: true })(name, (it) => {
    retention(it)

    // Seen failing with a day of nine million events: their files are removed in COMMIT, which had four seconds.
    it.effect("retention: a range whose files take long to remove is removed", function* () {
      const sql = yield* SqlClient.SqlClient
      const now = nextTime()
      yield* prepare(now)
      const { orgId } = yield* insertEvents([now], 0)
      yield* sql`INSERT INTO org_usage (org_id, stored_bytes) VALUES (${orgId}, 1000) ON CONFLICT DO NOTHING`
      yield* sql`
          CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN PERFORM pg_sleep(4.5); RETURN NULL; END $$`
      yield* sql`
          CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE ON org_usage DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW WHEN (OLD.org_id = ${sql.literal(`'${orgId}'`)}) EXECUTE FUNCTION sleep_at_commit()`
      yield* removeOld(plus(now, 3_600))
      yield* sql`DROP TRIGGER slow_commit ON org_usage`
    })

    it.effect("retention removes what a resend has not reached, and the resend finds nothing of it", function* () {
      const log = yield* DeliveryLogRepository
      const now = nextTime()
      yield* prepare(now)
      const { orgId } = yield* insertEvents([now])
      const [delivery] = yield* claim(now)
      yield* record([attempt(delivery!, "Exhausted", now)], now)
      const filter = { webhook_endpoint_id: delivery!.endpointId! }
      yield* log.resend(orgId, { filter, count: 1 }, newEntry({ target: yield* newId }))
      yield* removeOld(plus(now, 3_600))
      assert.deepStrictEqual(yield* deliveriesOf(orgId), [])
      assert.strictEqual(yield* recover(orgId, filter.webhook_endpoint_id, now, now), 0)
    })
  })
}
