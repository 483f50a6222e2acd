import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { JobRepository } from "../../domain/jobs/JobRepository.ts"
import { maxWorkflows, tooManyWorkflows, Workflow, workflowNotFound } from "../../domain/jobs/Workflows.ts"
import { audited } from "../audit/audited.ts"
import { date, decodeRows, Time } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"

const decode = decodeRows(Schema.Struct({ ...Workflow.fields, created_at: Time, updated_at: Time }))

/** The settings of workflows in PostgreSQL. */
export const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return {
    setWorkflow: (orgId, settings, entry) => {
      const { concurrency, concurrency_per_key: perKey, rate, retry, updated_at: now, workflow } = settings
      const values = sql`
        ${concurrency}::int, ${perKey}::int, ${rate?.limit ?? null}::int, ${rate?.window_seconds ?? null}::int,
        ${retry && JSON.stringify(retry)}::text::jsonb, ${settings.expires_in_seconds}::int`
      const columns = sql.literal(
        "concurrency, concurrency_per_key, rate_limit, rate_window_seconds, retry, expires_in_seconds",
      )
      return audited(
        sql,
        entry,
        sql`
          INSERT INTO workflows (org_id, workflow, created_at, updated_at, ${columns})
          SELECT id, ${workflow}, ${date(now)}, ${date(now)}, ${values} FROM rows
          ON CONFLICT (org_id, workflow) DO UPDATE SET updated_at = excluded.updated_at, version = workflows.version + 1,
            (${columns}) = ROW (${values})
          RETURNING org_id AS "orgId"`,
        undefined,
        sql`
          SELECT id FROM orgs WHERE id = ${orgId} AND (
            EXISTS (SELECT FROM workflows WHERE org_id = ${orgId} AND workflow = ${workflow})
            OR (SELECT count(*) FROM workflows WHERE org_id = ${orgId}) < ${maxWorkflows}
          )`,
      ).pipe(
        orUnavailable,
        Effect.flatMap(({ length }) => (length > 0 ? Effect.void : tooManyWorkflows())),
      )
    },

    workflows: (orgId, workflow) =>
      sql`
        SELECT workflow, concurrency, concurrency_per_key, retry, expires_in_seconds, created_at, updated_at, CASE WHEN rate_limit IS NOT NULL
          THEN json_build_object('limit', rate_limit, 'window_seconds', rate_window_seconds) END AS rate
        FROM workflows WHERE org_id = ${orgId} AND ${workflow === undefined ? sql`true` : sql`workflow = ${workflow}`}
        ORDER BY workflow`.pipe(decode, orUnavailable),

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
