import { assert } from "@effect/vitest"
import { SqlClient } from "effect/sql"
import { PendingDeliveries } from "#src/domain/webhooks/PendingLimit.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { OrgUsage } from "#src/infrastructure/orgs/OrgUsage.ts"
import { updateOrg } from "../../contract/orgs/orgLimits.ts"
import { at, insertOrg, newEntry, newId } from "../../contract/support.ts"
import { insertEndpoint, makeEvent, updateEndpoint } from "../../contract/webhooks/webhookSupport.ts"
import { layer } from "../../support/it.ts"
import { replicas, usedBy } from "../orgs/orgLimitsSupport.ts"

layer(replicas, { excludeTestServices: true })("limits of pending deliveries, on PostgreSQL", (it) => {
  it.effect("count large backlogs batch by batch, callbacks too", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const [small, large] = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId)]
    // A deactivated endpoint has a new lane: pending deliveries in the old one count as canceled.
    yield* WebhookEndpointRepository.use((all) => all.deactivate(orgId, large, at(0), newEntry()))
    yield* updateEndpoint(orgId, large, at(0), { active: true })
    for (const [lane, count] of [
      [small, 6_000],
      [large, 4_000],
      [`${large}.1`, 10_001],
      [`${orgId} 7`, 5_000],
      [`${orgId} 12`, 3],
      [`${yield* newId} 7`, 9],
    ] as const) {
      const org = lane.endsWith(" 7") ? lane.slice(0, 26) : orgId
      yield* sql`
          INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id,
            bytes, created_at, updated_at)
          SELECT ${lane}, 'd' || lpad(n::text, 9, '0'), 'e', 0, 0, '2126-01-01', true, ${org}, 0, now(), now()
          FROM generate_series(1, ${count}::int) AS n`
    }
    assert.strictEqual((yield* usedBy(orgId)).pendingDeliveries, 21_004)
    const overLimit = PendingDeliveries.use(({ overLimit }) => overLimit)
    // The limit is checked when an event comes.
    yield* updateOrg(orgId, { limits: { pendingDeliveries: 21_005 } })
    assert.deepStrictEqual(yield* overLimit, [])
    yield* makeEvent(orgId, at(0))
    const [over] = yield* overLimit
    assert.deepInclude(over, { orgId, limit: 21_005, endpointId: large })
    // The check repeats until the org is below its limit.
    assert.deepInclude((yield* overLimit)[0], { orgId, endpointId: large })
    yield* sql`DELETE FROM pending_deliveries WHERE lane = ${`${large}.1`}`
    assert.deepStrictEqual(yield* overLimit, [])
  })

  it.effect("are checked when a sweep creates deliveries", function* () {
    const { orgId } = yield* insertOrg()
    for (let n = 0; n < 40; n++) yield* insertEndpoint(orgId)
    const { takeWithPending } = yield* OrgUsage
    takeWithPending(100)
    yield* makeEvent(orgId, at(0))
    assert.deepStrictEqual(takeWithPending(9), [orgId])
    const { advance, next } = yield* SweepRepository
    const sweep = yield* next("", [])
    yield* advance(sweep!.sweepId, at(0), 100)
    assert.deepStrictEqual(takeWithPending(9), [orgId])
    assert.strictEqual((yield* usedBy(orgId)).pendingDeliveries, 40)
  })
})
