import { DateTime, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { DocsRecord } from "../../domain/docs/ProjectDocs.ts"
import type { DocsOf, LeasedDocs } from "../../domain/docs/ProjectDocsRepository.ts"
import { decodeRows, Time } from "../database/fragments.ts"

const Row = Schema.Struct({
  orgId: Schema.String,
  projectId: Schema.String,
  projectName: Schema.String,
  docsZipUrl: Schema.NullOr(Schema.String),
  docsUrl: Schema.NullOr(Schema.String),
  isPublic: Schema.Boolean,
  keepQuestions: Schema.Boolean,
  revision: Schema.Int,
  updatedAt: Time,
  leasedUntil: Schema.NullOr(Time),
  uncleanSince: Schema.NullOr(Time),
  deploymentId: Schema.NullOr(Schema.String),
  sha: Schema.NullOr(Schema.String),
  edition: Schema.NullOr(Schema.String),
  digest: Schema.NullOr(Schema.String),
  storedTarget: Schema.NullOr(Schema.String),
  storedDeploymentId: Schema.NullOr(Schema.String),
  pages: Schema.NullOr(Schema.Int),
  bytes: Schema.NullOr(Schema.Number),
  characters: Schema.NullOr(Schema.Number),
  storedAt: Schema.NullOr(Time),
  failedTarget: Schema.NullOr(Schema.String),
  attempts: Schema.NullOr(Schema.Int),
  error: Schema.NullOr(Schema.String),
  failedAt: Schema.NullOr(Time),
})
export const decodeDocs = decodeRows(Row)

export const toRecord = (row: typeof Row.Type): DocsRecord => {
  const { deploymentId, edition, failedTarget, sha } = row
  const at = (time: DateTime.Utc | null) => time ?? DateTime.makeUnsafe(0)
  return {
    orgId: row.orgId,
    projectId: row.projectId,
    projectName: row.projectName,
    docsZipUrl: row.docsZipUrl,
    docsUrl: row.docsUrl,
    isPublic: row.isPublic,
    keepQuestions: row.keepQuestions,
    revision: row.revision,
    updatedAt: row.updatedAt,
    leasedUntil: row.leasedUntil,
    uncleanSince: row.uncleanSince,
    deployment: deploymentId === null ? null : { id: deploymentId, sha: sha ?? "" },
    stored:
      edition === null
        ? null
        : {
            edition,
            digest: row.digest ?? "",
            target: row.storedTarget ?? "",
            deploymentId: row.storedDeploymentId,
            pages: row.pages ?? 0,
            bytes: row.bytes ?? 0,
            characters: row.characters ?? 0,
            at: at(row.storedAt),
          },
    failure:
      failedTarget === null
        ? null
        : { target: failedTarget, error: row.error ?? "", attempts: row.attempts ?? 0, at: at(row.failedAt) },
  }
}

/** The start of a SELECT of documentation `d` with its project `p`, up to its WHERE. */
export const selectDocs = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    SELECT d.org_id AS "orgId", d.project_id AS "projectId", p.name AS "projectName", docs_zip_url AS "docsZipUrl",
      docs_url AS "docsUrl", is_public AS "isPublic", keep_questions AS "keepQuestions", revision,
      d.updated_at AS "updatedAt", leased_until AS "leasedUntil",
      unclean_since AS "uncleanSince", dep.id AS "deploymentId", dep.sha, edition, digest,
      stored_target AS "storedTarget", stored_deployment_id AS "storedDeploymentId", pages, bytes::float8 AS bytes,
      characters::float8 AS characters, stored_at AS "storedAt", failed_target AS "failedTarget", attempts, error,
      failed_at AS "failedAt"
    FROM project_docs d JOIN projects p ON p.id = d.project_id AND p.org_id = d.org_id
    LEFT JOIN deployments dep ON dep.id = p.current_deployment_id`)

/** The condition of the rows of one project's documentation. */
export const isOf = (sql: SqlClient.SqlClient, { orgId, projectId }: DocsOf) =>
  sql`org_id = ${orgId} AND project_id = ${projectId}`

/** The condition of the documentation that a worker has the lease of. */
export const isLeased = (sql: SqlClient.SqlClient, docs: LeasedDocs) =>
  sql`${isOf(sql, docs)} AND lease = ${docs.lease}`
