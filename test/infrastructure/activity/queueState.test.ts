import { expect } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ActivityRepository } from "#src/domain/activity/ActivityRepository.ts"
import { OrgScope } from "#src/domain/Principal.ts"
import * as ActivitySql from "#src/infrastructure/activity/activitySql.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

const now = DateTime.makeUnsafe(Date.UTC(2026, 10, 20, 17))
const ago = (seconds: number) => DateTime.toDateUtc(DateTime.subtract(now, { seconds }))

for (const [name, database] of Object.entries({ embedded: databases.embedded, postgres: databases.postgres })) {
  layer(Layer.provideMerge(ActivitySql.layer, database), { excludeTestServices: true })(name, (it) => {
    it.effect("an org sees its own backlog, oldest delivery and sweeps only", function* () {
      const sql = yield* SqlClient.SqlClient
      const repository = yield* ActivityRepository
      let n = 0
      const insert = (
        orgId: string,
        lane: string,
        backlogged: boolean,
        dueAt: Date,
        leaseUntil: Date | null = null,
      ) => sql`
          INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id,
            lease_until, bytes, created_at, updated_at)
          VALUES (${lane}, ${String(++n)}, 'e', 0, 0, ${dueAt}, ${backlogged}, ${orgId}, ${leaseUntil}::timestamptz,
            0, now(), now())`
      yield* insert("a", "a1", false, ago(10))
      yield* insert("a", "a1", true, ago(50))
      yield* insert("a", "a2", true, ago(90))
      yield* insert("a", "a2", true, ago(900), ago(-60))
      yield* insert("a", "a1", false, ago(-300))
      yield* insert("b", "b1", false, ago(500))
      yield* sql`INSERT INTO sweeps (id, org_id, kind, created_at) VALUES ('s', 'b', 'cancel', ${ago(1)})`
      const stateOf = (scope: OrgScope) =>
        Effect.map(repository.queueState(scope, now), ({ backlog, oldestDueAt, sweeps }) => [
          backlog,
          oldestDueAt && (now.epochMilliseconds - oldestDueAt.epochMilliseconds) / 1000,
          sweeps,
        ])
      expect(yield* stateOf(OrgScope.OneOrg({ orgId: "a" }))).toEqual([3, 90, 0])
      expect(yield* stateOf(OrgScope.OneOrg({ orgId: "b" }))).toEqual([1, 500, 1])
      expect(yield* stateOf(OrgScope.OneOrg({ orgId: "c" }))).toEqual([0, null, 0])
      expect(yield* stateOf(OrgScope.EveryOrg())).toEqual([4, 500, 1])
    })
  })
}
