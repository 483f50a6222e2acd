import { assert } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AlertRepository } from "#src/domain/alerts/Alerts.ts"
import * as AlertsSql from "#src/infrastructure/alerts/alertsSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import { rowsRead, withoutAutovacuum } from "../../contract/boundedReads.ts"
import { alone, insertAlert } from "../../contract/alerts/alerts.ts"
import { everyOrg, insertOrg, oneOrg } from "../../contract/support.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

const repositories = Layer.mergeAll(AlertsSql.layer, AuditLogSql.layer, OrgsSql.layer)

/** Fills an org with endpoints by SQL: every hundredth fails since so many minutes, every other hundredth is gone. */
const fill = Effect.fnUntraced(function* (orgId: string, count: number, minutes: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO webhook_endpoints (id, org_id, lane, url, active, secret, failing_since, deactivated_at, deactivated_reason,
      created_at, updated_at)
    SELECT ${orgId} || lpad(n::text, 6, '0'), ${orgId}, n::text, 'https://h' || n || '.example.com/x', n % 100 <> 1, 's',
      CASE WHEN n % 100 < 2 THEN now() - ${minutes}::int * interval '1 minute' - n * interval '1 millisecond' END,
      CASE WHEN n % 100 = 1 THEN now() - n * interval '1 minute' END,
      CASE WHEN n % 100 = 1 THEN CASE WHEN n % 200 = 1 THEN 'gone' ELSE 'failing' END END, now(), now()
    FROM generate_series(1, ${count}::int) AS n`
})

layer(Layer.provideMerge(repositories, databases.postgres), { excludeTestServices: true })("looks of alerts", (it) => {
  it.effect("find the endpoints of an org, or of all, and read few others with any statistics", function* () {
    const sql = yield* SqlClient.SqlClient
    const { endpoints } = yield* AlertRepository
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    yield* withoutAutovacuum(["webhook_endpoints"])
    const before = DateTime.subtract(yield* DateTime.now, { minutes: 30 })
    const check = Effect.fnUntraced(function* (when: string) {
      for (const failingBefore of [before, null]) {
        for (const scope of [oneOrg(orgId), everyOrg]) {
          const { answer, rows } = yield* rowsRead(["webhook_endpoints"], endpoints(scope, failingBefore, 6))
          assert.isAtMost(rows, 500, `${when}, ${scope._tag}`)
          assert.isAbove(answer.length, 0)
          const since = answer.map((one) => one.since.epochMilliseconds)
          assert.deepStrictEqual(
            since,
            since.toSorted((a, b) => (failingBefore === null ? b - a : a - b)),
          )
          if (scope._tag === "OneOrg") assert.isTrue(answer.every((one) => one.orgId === orgId))
        }
      }
    })
    yield* fill(orgId, 200, 40)
    yield* check("without statistics")
    yield* sql`ANALYZE webhook_endpoints`
    // Of the others, none has failed for so long, and more of them are gone than the org has endpoints.
    yield* fill(other.orgId, 60_000, 5)
    yield* check("with old statistics")
    yield* sql`ANALYZE webhook_endpoints`
    yield* check("with fresh statistics")
    const failing = yield* endpoints(oneOrg(orgId), before, 6)
    assert.deepStrictEqual(
      failing.map(({ endpointId, url }) => [endpointId.slice(-3), url]),
      [
        ["200", "https://h200.example.com/x"],
        ["100", "https://h100.example.com/x"],
      ],
    )
    const gone = yield* endpoints(oneOrg(orgId), null, 6)
    assert.deepStrictEqual(
      gone.map(({ endpointId }) => endpointId.slice(-3)),
      ["001", "101"],
    )
  })

  it.effect("claim what is due, and read nothing of what is not", function* () {
    const sql = yield* SqlClient.SqlClient
    const { claim } = yield* AlertRepository
    const { orgId } = yield* insertOrg()
    yield* withoutAutovacuum(["alerts"])
    const { secret: _, ...alert } = yield* insertAlert(orgId, { active: false })
    const text = JSON.stringify(alert)
    const insert = (count: number, due: string) => sql`
        INSERT INTO alerts (id, org_id, alert, secret, active, due_at)
        SELECT ${orgId + due} || n, ${orgId}, ${text}, 's', true, now() + ${due}::interval
        FROM generate_series(1, ${count}::int) AS n`
    yield* insert(10_000, "1 hour")
    assert.isAtMost((yield* rowsRead(["alerts"], claim(10, 120, alone))).rows, 10)
    yield* insert(25, "-1 minute")
    const { answer, rows } = yield* rowsRead(["alerts"], claim(10, 120, alone))
    assert.strictEqual(answer.length, 10)
    assert.isAtMost(rows, 100)
  })
})
