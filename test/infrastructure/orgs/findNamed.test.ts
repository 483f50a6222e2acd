import { expect } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { maxFilteredRows } from "#src/domain/Page.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import { rowsRead } from "../../contract/boundedReads.ts"
import { everyOrg } from "../../contract/support.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"

const newer = 5_000

for (const [name, database] of Object.entries({ embedded: databases.embedded, postgres: databases.postgres })) {
  layer(Layer.provideMerge(OrgsSql.layer, database), { excludeTestServices: true })(name, (it) => {
    it.effect(
      "what has a name is found however much is newer, and a page reads 2,000 rows of each kind at most",
      function* () {
        const sql = yield* SqlClient.SqlClient
        const { findNamed } = yield* OrgRepository
        yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('old', 'Old', now()), ('new', 'New', now())`
        yield* sql`
          INSERT INTO api_keys (id, org_id, hash, prefix, name, created_at)
          SELECT 'k' || lpad(n::text, 5, '0'), CASE WHEN n = 0 THEN 'old' ELSE 'new' END, n::text::bytea, 'svc',
            CASE WHEN n = 0 THEN 'Billing' ELSE 'other' END, now()
          FROM generate_series(0, ${newer}::int) AS n`
        yield* sql`
          INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
          VALUES ('a', 'old', now(), 'administrator', 'key.create', 't', '{}', 'billing-request')`
        const readAll = Effect.fnUntraced(function* (text: string) {
          const found: Array<readonly [kind: string, id: string, orgName: string]> = []
          let pages = 0
          let cursor: string | undefined
          do {
            const page = findNamed(everyOrg, { text, limit: 10, ...(cursor === undefined ? {} : { cursor }) })
            const { answer, rows } = yield* rowsRead(["api_keys"], page)
            // The rows of the page, by an index and in the table, and once more to know where it ends.
            expect(rows).toBeLessThanOrEqual(4 * maxFilteredRows)
            found.push(...answer.items.map(({ id, kind, orgName }) => [kind, id, orgName] as const))
            cursor = answer.seenTo
            pages++
          } while (cursor !== undefined)
          return { found, pages }
        })
        expect(yield* readAll("billing")).toEqual({ found: [["key", "k00000", "Old"]], pages: 3 })
        expect((yield* readAll("billing-request")).found).toEqual([["change", "a", "Old"]])
      },
    )
  })
}
