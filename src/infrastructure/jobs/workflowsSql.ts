import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { maxWorkflows, tooManyWorkflows, Workflow, workflowNotFound } from "../../domain/jobs/WorkflowSettings.ts"
import { orgDeleted } from "../../domain/orgs/Org.ts"
import { audited } from "../audit/audited.ts"
import { date, decodeRows, Time } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"

const decodeWorkflows = decodeRows(Schema.Struct({ ...Workflow.fields, created_at: Time, updated_at: Time }))

/** The settings of workflows in PostgreSQL. */
export const makeSettings = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const bytes = yield* ByteLimit.make
  return {
    setWorkflow: (orgId, settings, entry) =>
      Effect.gen(function* () {
        const { concurrency, concurrency_per_key: perKey, rate, retry, updated_at: now, workflow } = settings
        // The lock lets no other workflow in until the commit, and no erasure begins before it.
        const [org] = yield* sql`SELECT id FROM orgs WHERE id = ${orgId} FOR NO KEY UPDATE`
        if (org === undefined) return yield* orgDeleted
        const values = sql`
          ${concurrency}::int, ${perKey}::int, ${rate?.limit ?? null}::int, ${rate?.window_seconds ?? null}::int,
          ${retry && JSON.stringify(retry)}::text::jsonb, ${settings.expires_in_seconds}::int`
        const columns = sql.literal(
          "concurrency, concurrency_per_key, rate_limit, rate_window_seconds, retry, expires_in_seconds",
        )
        const is = sql`org_id = ${orgId} AND workflow = ${workflow}`
        const set = audited(
          sql,
          entry,
          sql`
            INSERT INTO workflows (org_id, workflow, created_at, updated_at, ${columns})
            SELECT ${orgId}, ${workflow}, ${date(now)}::timestamptz, ${date(now)}::timestamptz, ${values}
            WHERE EXISTS (SELECT FROM workflows WHERE ${is})
              OR (SELECT count(*) FROM workflows WHERE org_id = ${orgId}) < ${maxWorkflows}
            ON CONFLICT (org_id, workflow) DO UPDATE SET
              updated_at = excluded.updated_at, version = workflows.version + 1, (${columns}) = ROW (${values})
            RETURNING org_id AS "orgId"`,
        )
        const written = yield* bytes.changing("workflow", is, set)
        if (written.length === 0) return yield* tooManyWorkflows()
      }).pipe(sql.withTransaction, orUnavailable),

    workflows: (orgId, workflow) =>
      sql`
        SELECT workflow, concurrency, concurrency_per_key, retry, expires_in_seconds, created_at, updated_at,
          CASE WHEN rate_limit IS NOT NULL
            THEN json_build_object('limit', rate_limit, 'window_seconds', rate_window_seconds) END AS rate
        FROM workflows WHERE org_id = ${orgId} AND ${workflow === undefined ? sql`true` : sql`workflow = ${workflow}`}
        ORDER BY workflow`.pipe(decodeWorkflows, orUnavailable),

    deleteWorkflow: (orgId, workflow, entry) =>
      audited(
        sql,
        entry,
        sql`
          DELETE FROM workflows WHERE org_id = ${orgId} AND workflow = ${workflow} RETURNING org_id AS "orgId"`,
      ).pipe(
        orUnavailable,
        Effect.flatMap(({ length }) => (length > 0 ? Effect.void : workflowNotFound())),
      ),
  } satisfies Partial<JobRepository["Service"]>
})
