import { Effect, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditAction } from "../../domain/audit/AuditEntry.ts"
import { type Erased, erasedKinds } from "../../domain/orgs/OrgErasure.ts"

/** What an org's erasure has removed so far at a database. */
interface Progress {
  /** In percent. */
  readonly progress: number
  readonly erased: Partial<Erased>
  /** The node that erases the other rows of the org. */
  readonly node: string | null
  readonly endedAt: Date | null
}

/** Entries of the audit log among which the deletion of an org and its receipt are: later ones are few. */
const newestEntries = 100

/** The newest entry of an action in the log of a deleted org. */
export const newestEntry = <Entry extends object>(
  sql: SqlClient.SqlClient,
  orgId: string,
  action: AuditAction,
  columns: string,
) =>
  Effect.map(
    sql<Entry>`
      SELECT ${sql.literal(columns)} FROM (
        SELECT * FROM audit_log WHERE org_id = ${orgId} ORDER BY id DESC LIMIT ${newestEntries}
      ) AS newest WHERE action = ${action} ORDER BY id DESC LIMIT 1`,
    ([entry]) => entry,
  )

/** What the erasure of an org has removed so far at a database; undefined: it has none there. */
export const erasedSoFar = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, sweepId: string, orgId: string) {
  const [running] = yield* sql<{ done: number; erased: string | null; source: string | null }>`
    SELECT done, erased, source FROM sweeps WHERE id = ${sweepId}`
  if (running !== undefined) {
    const erased = JSON.parse(running.erased ?? "{}") as Progress["erased"]
    return { progress: running.done, erased, node: running.source, endedAt: null } satisfies Progress
  }
  const receipt = yield* newestEntry<{ details: string; at: Date }>(sql, orgId, "org.erase", "details, at")
  if (receipt === undefined) return undefined
  const { erased } = JSON.parse(receipt.details) as { readonly erased: Progress["erased"] }
  return { progress: 100, erased, node: null, endedAt: receipt.at } satisfies Progress
})

/** The sum of what two databases have erased; only what is not 0. */
export const sumOfErased = (one: Progress["erased"], other: Progress["erased"]): Progress["erased"] =>
  Object.fromEntries(
    Struct.keys(erasedKinds).flatMap((kind) => {
      const sum = (one[kind] ?? 0) + (other[kind] ?? 0)
      return sum === 0 ? [] : [[kind, sum]]
    }),
  )
