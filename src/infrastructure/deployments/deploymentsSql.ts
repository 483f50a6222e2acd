import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { Deployment } from "../../domain/deployments/Deployment.ts"
import {
  type DeploymentFilter,
  deploymentNotFound,
  DeploymentRepository,
} from "../../domain/deployments/DeploymentRepository.ts"
import type { Page } from "../../domain/Page.ts"
import { newestOf } from "../../domain/deployments/registration.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { audited } from "../audit/audited.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { afterCursor, date, decodePage, inScope, pageOf, Time } from "../database/fragments.ts"
import * as Limits from "../orgs/limits.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orgExists } from "../projects/repositoryLinks.ts"
import { decodeProjects, projectColumns } from "../projects/projectsSql.ts"
import { findLinkedProjects, registerRun } from "./registerRun.ts"

const Row = Schema.Struct({ ...Deployment.fields, createdAt: Time })
const decode = decodePage(Row)

interface PromotedRow {
  readonly runId: string
  readonly runAttempt: number
  readonly at: Date
  /** Whether the run is of the repository that is linked now: runs of another one have another order. */
  readonly isOfLink: boolean
}

/** Makes a deployment current, in a transaction. */
const promote = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  scope: OrgScope,
  projectId: string,
  deploymentId: string,
  now: DateTime.Utc,
  entry: AuditEntry,
) {
  const [project] = yield* findLinkedProjects(sql, sql`p.id = ${projectId} AND ${inScope(sql, scope, "p.org_id")}`)
  if (project === undefined) return yield* projectNotFound()
  const { issuer, orgId, repositoryId } = project
  const [run] = yield* sql<PromotedRow>`
    SELECT run_id AS "runId", run_attempt AS "runAttempt", coalesce(issued_at, created_at) AS at,
      coalesce(issuer = ${issuer}::text AND repository_id = ${repositoryId}::text, false) AS "isOfLink"
    FROM deployments WHERE id = ${deploymentId} AND project_id = ${projectId} AND org_id = ${orgId}`
  if (run === undefined) return yield* deploymentNotFound()
  const { at, isOfLink, ...position } = run
  const promoted = isOfLink ? { ...position, at: DateTime.fromDateUnsafe(at) } : null
  const newest = newestOf([project.newest, promoted])
  const [row] = yield* audited(
    sql,
    entry,
    sql`
      UPDATE projects SET current_deployment_id = ${deploymentId}, updated_at = ${date(now)},
        newest_run_id = ${newest?.runId ?? null}, newest_run_attempt = ${newest?.runAttempt ?? null}::int,
        newest_run_at = ${newest === null ? null : date(newest.at)}::timestamptz
      WHERE id = ${projectId} AND org_id = ${orgId}
      RETURNING ${projectColumns(sql)}`,
  ).pipe(decodeProjects)
  return row!
})

/**
 * The conditions of a list in a project, and its order. Those of a filter are in the form of its index, so that they
 * fit no other (ADR 14): with plain columns a plan that expects many deployments of each branch reads all of the
 * project.
 */
const matches = (
  sql: SqlClient.SqlClient,
  project: Statement.Fragment,
  { branch, preview, ...page }: Page & DeploymentFilter,
) => {
  if (branch === undefined && preview === undefined) {
    return sql`project_id = ${project} AND ${afterCursor(sql, page, "newest")} ORDER BY id DESC`
  }
  const isBranch = sql`md5(project_id || ' ' || branch) = md5(${project} || ' ' || ${branch ?? null}::text) AND branch = ${branch ?? null}`
  const isPreview = sql`preview = ${preview ?? null}::boolean`
  const filter = branch === undefined ? isPreview : preview === undefined ? isBranch : sql`${isBranch} AND ${isPreview}`
  return sql`
    project_id || '' = ${project} AND ${filter} AND id || '' < ${page.cursor ?? "~"} ORDER BY id || '' DESC`
}

/** Deployments in PostgreSQL. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const limit = yield* Limits.make("projects")
    const bytes = yield* Limits.makeBytes
    const columns = sql.literal(`
      id, project_id AS "projectId", org_id AS "orgId", provider, branch, ref, sha, preview,
      preview_reason AS "previewReason", pull_request AS "pullRequest", run_id AS "runId", run_attempt AS "runAttempt", workflow, actor,
      event_name AS "eventName", environment, created_at AS "createdAt"`)

    return DeploymentRepository.of({
      register: (deployment) => orUnavailable(registerRun(sql, limit, bytes, deployment)),

      promote: (...asked) => promote(sql, ...asked).pipe(sql.withTransaction, orUnavailable),

      list: (scope, projectId, page) => {
        const project = sql`(
          SELECT id FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)} AND ${sql.literal(orgExists())})`
        return pageOf(
          sql,
          page,
          sql`
            -- The scope of the project first, so that no row of another org's project is read. The scope of the rows last:
            -- with both conditions together the planner sorts all deployments of the project.
            SELECT ${columns} FROM (
              SELECT * FROM deployments
              WHERE ${matches(sql, project, page)} LIMIT ${page.limit + 1}
            ) AS newest
            WHERE ${inScope(sql, scope)}`,
          "id",
          ["branch", "ref", "sha", "previewReason", "workflow", "actor", "eventName", "environment"],
          "newest",
        ).pipe(decode, orUnavailable)
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
