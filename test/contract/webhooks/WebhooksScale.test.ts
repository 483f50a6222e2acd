import { assert } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import { claimSql } from "#src/infrastructure/webhooks/claimDeliveries.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import { databases } from "../../support/databases.ts"
import * as crypto from "../../fakes/crypto.ts"
import { layer } from "../../support/it.ts"
import { insertMany } from "./deliveriesAtScale.ts"
import { insertOrg } from "../support.ts"
import { assertNothingDue, attempt, claim, epoch, insertEndpoint, look, plus, record } from "./webhookSupport.ts"

const sql = Layer.mergeAll(DeliveryQueueSql.layer, OrgsSql.layer, WebhookEndpointsSql.layer).pipe(
  Layer.provide(crypto.layer),
)

for (const [name, database] of Object.entries(databases)) {
  layer(Layer.provideMerge(sql, database), { excludeTestServices: true })(name, (it) => {
    it.effect(
      "ten thousand due deliveries of a full lane do not block other lanes, and are claimed when slots are free",
      function* () {
        const { nextDueAt } = yield* DeliveryQueue
        const { orgId } = yield* insertOrg()
        const [full, other] = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId)]
        const now = epoch()
        const at = DateTime.toDateUtc(now)
        yield* insertMany({ orgId, endpoint: full, state: "pending", count: 10_000, now: at })
        yield* insertMany({ orgId, endpoint: other, state: "pending", count: 1, now: at })

        const inFlight = new Map([[full, 10]])
        let claims = 1
        let claimed = yield* claim(now, { limit: 256, inFlight })
        while (claimed.length === 0 && claims < 100) {
          // More is due, so the worker does not sleep.
          assert.isTrue(DateTime.isLessThanOrEqualTo((yield* nextDueAt)!, now))
          claimed = yield* claim(now, { limit: 256, inFlight })
          claims++
        }
        assert.deepStrictEqual(
          claimed.map(({ lane }) => lane),
          [other],
        )
        assert.isAtMost(claims, Math.ceil(10_001 / 512))

        // From now on, a claim finds another lane at once, and backlogged deliveries do not wake the worker.
        yield* assertNothingDue(plus(now, 60))
        yield* record([attempt(claimed[0]!, { retryAt: now }, now)], now)
        assert.deepStrictEqual(
          (yield* claim(now, { limit: 1, inFlight })).map(({ lane }) => lane),
          [other],
        )
        const room = yield* claim(now, { limit: 256, inFlight: new Map([[full, 3]]) })
        const longestDue = Array.from({ length: 7 }, (_, n) => `${full}-pending-${9_999 - n}`)
        assert.deepStrictEqual(room.map(({ deliveryId }) => deliveryId).sort(), longestDue.sort())
      },
    )
  })
}

interface PlanNode {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Shared Hit Blocks": number
  readonly "Shared Read Blocks": number
  readonly Plans?: ReadonlyArray<PlanNode>
}

/** Explains a claim: how it finds deliveries, and how many pages it reads. The claim is rolled back. */
const explainClaim = Effect.fnUntraced(function* (now: DateTime.Utc, orgId: string, full: string, limit = 256) {
  const sql = yield* SqlClient.SqlClient
  const statement = claimSql(
    sql,
    {
      claimId: "explained",
      now,
      leaseUntil: plus(now, 60),
      limit,
      laneCap: 10,
      lanes: new Map([[full, { count: 10, cap: 10, works: true }]]),
      free: { count: 10_000, bytes: 2 ** 30 },
      reserve: 1,
      minBacklog: 1,
      orgs: new Map(),
    },
    {
      headSince: null,
      headSize: 512,
      orgs: [{ orgId, share: limit, isCut: false }],
      lanes: [{ orgId, lane: full, since: null }],
      more: false,
      short: false,
    },
    sql`NULL`,
  )
  const [row] = yield* sql<{ "QUERY PLAN": ReadonlyArray<{ readonly Plan: PlanNode }> }>`
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${statement}`
  const plan = row!["QUERY PLAN"][0]!.Plan
  const scans = new Set<string>()
  const visit = (node: PlanNode) => {
    if (
      node["Node Type"].includes("Scan") &&
      (node["Relation Name"] ?? "pending_deliveries") === "pending_deliveries"
    ) {
      if (node["Index Name"] !== undefined) scans.add(node["Index Name"])
      else if (node["Relation Name"] !== undefined) scans.add(node["Node Type"])
    }
    for (const child of node.Plans ?? []) visit(child)
  }
  visit(plan)
  return { scans: [...scans].sort(), pages: plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] }
})
const explained = (...options: Parameters<typeof explainClaim>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return yield* sql
      .withTransaction(
        Effect.flatMap(Effect.exit(explainClaim(...options)), (rolledBack) => Effect.fail({ rolledBack })),
      )
      .pipe(
        Effect.flip,
        Effect.flatMap((error) => ("rolledBack" in error ? error.rolledBack : Effect.die(error))),
      )
  })

/** A queue with nothing but deliveries of one endpoint. */
const backlog = Effect.fnUntraced(function* (count: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DELETE FROM pending_deliveries`
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId)
  const now = epoch()
  yield* insertMany({ orgId, endpoint, state: "pending", count, now: DateTime.toDateUtc(now) })
  return { orgId, endpoint, now }
})

layer(Layer.provideMerge(sql, databases.postgres), { excludeTestServices: true })("plans", (it) => {
  it.effect("a claim costs the same with two hundred thousand finished deliveries as with none", function* () {
    const sql = yield* SqlClient.SqlClient
    const { orgId } = yield* insertOrg()
    const [full, other] = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId)]
    const now = epoch()
    const at = DateTime.toDateUtc(now)
    yield* insertMany({ orgId, endpoint: full, state: "pending", count: 200, now: at })
    yield* insertMany({ orgId, endpoint: other, state: "pending", count: 5, now: at })
    yield* sql`UPDATE pending_deliveries SET backlogged = true WHERE lane = ${full}`
    yield* sql`ANALYZE`
    const before = yield* explained(now, orgId, full)
    // Leaves out only the checks of the test's own rows.
    yield* insertMany({ orgId, endpoint: other, state: "delivered", count: 200_000, now: at })
    const unanalyzed = yield* explained(now, orgId, full)
    yield* sql`ANALYZE`
    const analyzed = yield* explained(now, orgId, full)
    for (const { pages, scans } of [unanalyzed, analyzed]) {
      assert.deepStrictEqual(scans, ["Tid Scan", "pending_deliveries_due", "pending_deliveries_in_order"])
      assert.isAtMost(pages, before.pages * 1.5)
    }
  })

  // Seen failing with one index entry for all deliveries that are due at the same time.
  it.effect("a claim does not read delivered rows again among those that were due at the same time", function* () {
    const sql = yield* SqlClient.SqlClient
    const { endpoint, now, orgId } = yield* backlog(5_000)
    // There are twenty lanes, and neighbours in a lane are on different pages.
    yield* sql`
        UPDATE pending_deliveries SET backlogged = true, due_at = ${DateTime.toDateUtc(now)},
          lane = ${orgId}::text || ' ' || chr(65 + right(delivery_id, -length(${endpoint}) - 9)::int % 20)`
    yield* sql`VACUUM ANALYZE pending_deliveries`
    const before = yield* explained(now, orgId, endpoint, 10)
    const claimed = yield* claim(now, { limit: 200, laneCap: 200 })
    assert.deepStrictEqual([...new Set(claimed.map(({ lane }) => lane))], [`${orgId} A`])
    yield* record(
      claimed.map((delivery) => attempt(delivery, "Delivered", now)),
      now,
    )
    // Waits for one commit, after which a claim finds the rows gone.
    yield* insertEndpoint(orgId)
    yield* explained(now, orgId, endpoint, 10)
    assert.isAtMost((yield* explained(now, orgId, endpoint, 10)).pages, before.pages * 2)
  })

  // Seen failing when a claim read all lanes to find the most overdue one.
  it.effect(
    "a claim over five thousand lanes with a backlog reads only the lanes that it takes from, and each lane has its turn",
    function* () {
      const sql = yield* SqlClient.SqlClient
      const { endpoint, now, orgId } = yield* backlog(10_000)
      const lanes = (count: number) => sql`
        UPDATE pending_deliveries SET backlogged = true,
          lane = ${orgId}::text || ' ' || lpad((right(delivery_id, -length(${endpoint}) - 9)::int % ${count}::int)::text, 4, '0')`
      yield* lanes(10)
      yield* sql`VACUUM ANALYZE pending_deliveries`
      const few = yield* explained(now, orgId, endpoint, 50)
      yield* lanes(5_000)
      yield* sql`VACUUM ANALYZE pending_deliveries`
      assert.isAtMost((yield* explained(now, orgId, endpoint, 50)).pages, few.pages * 2)

      yield* Effect.replicateEffect(look, 2)
      const taken: Array<string> = []
      for (let n = 0; n < 11; n++) {
        taken.push(...(yield* claim(now, { limit: 500, laneCap: 1 })).map(({ lane }) => lane))
      }
      assert.strictEqual(new Set(taken).size, 5_000)
    },
  )
})
