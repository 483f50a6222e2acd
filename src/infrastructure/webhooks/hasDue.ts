import type { DateTime } from "effect"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { functionsOf } from "../database/buckets.ts"
import { date } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"

const call = "SELECT pg_temp.gatehouse_has_due($1::timestamptz) AS has"
// A function, because Citus keeps the plan of a statement on one table, and plans any other one each time.
const create = `
  CREATE OR REPLACE FUNCTION pg_temp.gatehouse_has_due(at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM 1 FROM pending_deliveries WHERE NOT parked AND due_at <= at LIMIT 1;
    IF NOT FOUND THEN
      PERFORM 1 FROM pending_deliveries WHERE parked LIMIT 1;
    END IF;
    RETURN FOUND;
  END $$`

/** Whether a claim in the bucket of the fiber may find something: a due delivery, or a backlog. A tenth of the cost of a claim. */
export const hasDue = (sql: SqlClient.SqlClient, now: DateTime.Utc) => {
  functionsOf(sql)?.add(call, create)
  return sql.unsafe<{ has: boolean }>(call, [date(now)]).pipe(
    Effect.map(([row]) => row!.has),
    orUnavailable,
  )
}
