import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { InvalidRequest } from "../../domain/Errors.ts"
import { changedFiring } from "../../domain/jobs/firings.ts"
import { type JobScheduleChanges, scheduleNotFound } from "../../domain/jobs/JobScheduleRepository.ts"
import { audited } from "../audit/audited.ts"
import { dateOrNull, toJsonText } from "../database/fragments.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"

interface Row {
  readonly cron: string
  readonly timezone: string
  readonly next_at: Date | null
  readonly inputBytes: number
}

/** The assignments of an UPDATE for the changed fields. */
const assignments = (sql: SqlClient.SqlClient, changes: JobScheduleChanges, input: string | null) => {
  const columns: Record<string, unknown> = {
    workflow: changes.workflow,
    input: changes.input === undefined ? undefined : input,
    deployment_id: changes.deploymentId,
    callback_url: changes.callbackUrl,
    callback_secret: changes.callbackSecret,
    skip_callbacks: changes.skipCallbacks,
    priority: changes.priority,
    max_attempts: changes.maxAttempts,
    retry_delay_seconds: changes.retryDelaySeconds,
    cron: changes.cron,
    timezone: changes.timezone,
    overlap: changes.overlap,
  }
  return Object.entries(columns).flatMap(([column, value]) =>
    value === undefined ? [] : [sql`${sql(column)} = ${value as string | number | boolean | null}`],
  )
}

/** Changes a schedule, in a transaction. */
export const changeSchedule = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bytes: StoredBytes.StoredBytes,
  orgId: string,
  scheduleId: string,
  changes: JobScheduleChanges,
  now: DateTime.Utc,
  entry: AuditEntry,
) {
  const [row] = yield* sql<Row>`
    SELECT cron, timezone, next_at, coalesce(octet_length(input), 0) AS "inputBytes" FROM job_schedules
    WHERE id = ${scheduleId} AND org_id = ${orgId} FOR UPDATE`
  if (row === undefined) return yield* scheduleNotFound()
  const current = { ...row, nextAt: row.next_at && DateTime.fromDateUnsafe(row.next_at) }
  const nextAt = yield* Effect.mapError(
    Effect.fromResult(changedFiring(current, changes, now)),
    (error) => new InvalidRequest({ error: `${error}.` }),
  )
  const input = changes.input === undefined ? null : toJsonText(changes.input)
  const added = changes.input === undefined ? 0 : StoredBytes.byteLength(input) - row.inputBytes
  const sets = [...assignments(sql, changes, input), sql`next_at = ${dateOrNull(nextAt)}::timestamptz`]
  const [updated] = yield* bytes.storing(
    orgId,
    added,
    (rows) => rows.length > 0,
    Effect.suspend(() =>
      audited(
        sql,
        entry,
        sql`
          UPDATE job_schedules s SET ${sql.csv(sets)} FROM orgs org
          WHERE s.id = ${scheduleId} AND s.org_id = ${orgId} AND org.id = ${orgId} AND ${bytes.fits(orgId, Math.max(0, added))}
          RETURNING s.org_id AS "orgId"`,
      ),
    ),
  )
  if (updated === undefined) return yield* bytes.refuse(orgId)
  return undefined
})
