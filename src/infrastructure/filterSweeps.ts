import type { SqlClient } from "effect/sql"
import type { AuditEntry } from "../domain/audit/AuditEntry.ts"
import { maxFilterSweeps } from "../domain/sweeps/maxFilterSweeps.ts"
import type { Sweep } from "../domain/sweeps/Sweeps.ts"
import { audited } from "./audit/audited.ts"
import { date, texts } from "./database/fragments.ts"
import { oneAtATime } from "./database/boundedTransactions.ts"

/*
 * Sweeps over what a filter selects, which a person starts after a count, watches and may end: what such a sweep has
 * not reached stays as it is.
 */

type Sql = SqlClient.SqlClient
type Kinds = ReadonlyArray<Sweep["kind"]>

/** Sweeps of these kinds that a list shows. */
const maxListed = 1_000

/**
 * Starts a sweep, unless the org has too many of these kinds, for the endpoint or for none. Its id is the target of the
 * entry.
 */
export const startFilterSweep = (
  sql: Sql,
  orgId: string,
  {
    count,
    endpointId = null,
    filter,
    kind,
    kinds = [kind],
  }: {
    readonly kind: Sweep["kind"]
    readonly kinds?: Kinds
    /** In JSON. */
    readonly filter: string
    readonly count: number
    /** The endpoint that the filter selects, if it selects one. */
    readonly endpointId?: string | null | undefined
  },
  entry: AuditEntry,
) =>
  oneAtATime(
    sql,
    `sweeps:${orgId}`,
    audited(
      sql,
      entry,
      sql`
        INSERT INTO sweeps (id, org_id, kind, endpoint_id, filter, total, created_at)
        SELECT ${entry.target}, ${orgId}, ${kind}, ${endpointId}, ${filter}, ${count}::int,
          ${date(entry.at)}::timestamptz
        FROM rows WHERE open < ${maxFilterSweeps}
        RETURNING org_id AS "orgId"`,
      sql`
        SELECT count(*) AS open FROM sweeps
        WHERE org_id = ${orgId} AND kind = ANY(${texts(kinds)}) AND endpoint_id IS NOT DISTINCT FROM ${endpointId}`,
    ),
  )

interface FilterSweepRow {
  readonly id: string
  readonly kind: Sweep["kind"]
  readonly filter: string
  readonly count: number
  readonly done: number
  readonly created_at: Date
}

/** The newest unfinished sweeps of an org, newest first. */
export const filterSweeps = (sql: Sql, orgId: string, kinds: Kinds) => sql<FilterSweepRow>`
  SELECT id, kind, filter, total AS count, done, created_at FROM sweeps
  WHERE org_id = ${orgId} AND kind = ANY(${texts(kinds)}) ORDER BY id DESC LIMIT ${maxListed}`

/** Ends the sweep that the entry names; returns no row when there is no such sweep. */
export const endFilterSweep = (sql: Sql, orgId: string, kinds: Kinds, entry: AuditEntry) =>
  audited(
    sql,
    entry,
    sql`
      DELETE FROM sweeps WHERE id = ${entry.target} AND org_id = ${orgId} AND kind = ANY(${texts(kinds)})
      RETURNING org_id AS "orgId"`,
  )
