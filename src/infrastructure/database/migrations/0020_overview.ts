import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What the overview reads: which orgs use most, and the figures of each replica. A replica of the version before goes on as
 * before; it has no figures.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // Without the minutes, which are most of the rows, and without the count: an update of it stays in its page.
  yield* sql`
    CREATE INDEX activity_counts_by_kind ON activity_counts (every, kind, at)
    WHERE every IN ('hour', 'day') AND org_id <> ''`

  // What a replica measured in the last minute, as JSON.
  yield* sql`ALTER TABLE replicas ADD COLUMN figures text`
})
