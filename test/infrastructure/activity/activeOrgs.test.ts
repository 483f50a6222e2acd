import { expect } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ActivityRepository } from "#src/domain/activity/ActivityRepository.ts"
import * as ActivitySql from "#src/infrastructure/activity/activitySql.ts"
import { rowsRead } from "../../contract/boundedReads.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

const since = DateTime.makeUnsafe(Date.UTC(2026, 10, 20, 17))
const orgs = 50
/** Each of the orgs has this many minutes, and as many older hours, that the list must not read. */
const others = 400

for (const [name, database] of Object.entries({ embedded: databases.embedded, postgres: databases.postgres })) {
  layer(Layer.provideMerge(ActivitySql.layer, database), { excludeTestServices: true })(name, (it) => {
    it.effect(
      "the orgs that use most are found without the minutes, the older hours, and what else is counted",
      function* () {
        const sql = yield* SqlClient.SqlClient
        const repository = yield* ActivityRepository
        // Statistics stay empty, as right after a table is filled.
        yield* sql`ALTER TABLE activity_counts SET (autovacuum_enabled = off)`
        const insert = (every: string, kind: string, steps: number, hours: number) => sql`
          INSERT INTO activity_counts (org_id, every, at, kind, outcome, count)
          SELECT 'org' || o, ${every}, ${DateTime.toDateUtc(since)}::timestamptz + make_interval(hours => ${hours} * s), ${kind},
            'delivered', o
          FROM generate_series(1, ${orgs}::int) AS o, generate_series(1, ${steps}::int) AS s`
        yield* insert("hour", "deliveries", 2, 1)
        yield* insert("hour", "jobs", others, 1)
        yield* insert("hour", "deliveries", others, -1)
        yield* insert("minute", "deliveries", others, 1)
        const list = repository.activeOrgs({ by: "attempts", every: "hour", since, limit: 10, after: undefined })
        const check = Effect.fnUntraced(function* (when: string) {
          const { answer, rows } = yield* rowsRead(["activity_counts"], list)
          expect(
            answer.orgs.slice(0, 2).map(({ attempts, orgId }) => [orgId, attempts]),
            when,
          ).toEqual([
            ["org50", 100],
            ["org49", 98],
          ])
          // The counts of each org in an index and in the table; and all counts of the 11 orgs of the page since then.
          expect(rows, when).toBeLessThan(2 * (2 * orgs + 11 * (others + 2)) + 100)
        })
        yield* check("without statistics")
        yield* sql`ANALYZE activity_counts`
        yield* check("with statistics")
      },
    )
  })
}
