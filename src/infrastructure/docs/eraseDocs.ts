import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { DocsOf, LeasedDocs } from "../../domain/docs/ProjectDocsRepository.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { texts } from "../database/arrays.ts"
import { inScope } from "../database/fragments.ts"
import { isLeased, isOf } from "./docsRows.ts"

type Sql = SqlClient.SqlClient

/** Erases up to `limit` rows of a table that belong to a project's documentation. */
export const eraseFrom = (sql: Sql, table: string, docs: DocsOf, limit: number, which = sql.literal("true")) =>
  Effect.map(
    sql`
      DELETE FROM ${sql(table)} WHERE ${isOf(sql, docs)} AND ctid = ANY(ARRAY(
        SELECT ctid FROM ${sql(table)} WHERE ${isOf(sql, docs)} AND ${which} LIMIT ${limit}
      )) RETURNING 1`,
    (rows) => rows.length,
  )

/** Questions that one statement erases. */
const eraseBatchSize = 2_000

/** Erases the questions of documentation that was removed, which the next setting would show again. */
export const eraseRemovedQuestions = Effect.fnUntraced(function* (sql: Sql, scope: OrgScope, projectId: string) {
  const [removed] = yield* sql<DocsOf>`
    SELECT d.org_id AS "orgId", d.project_id AS "projectId"
    FROM projects JOIN project_docs d ON d.org_id = projects.org_id AND d.project_id = projects.id
    WHERE projects.id = ${projectId} AND ${inScope(sql, scope, "projects.org_id")} AND docs_zip_url IS NULL
    FOR UPDATE OF d`
  if (removed === undefined) return
  // At most those that a project keeps.
  while ((yield* eraseFrom(sql, "docs_questions", removed, eraseBatchSize)) === eraseBatchSize);
})

/** Erases rows that nobody reads; the last row of removed documentation is that of its settings. */
export const clean = Effect.fnUntraced(function* (sql: Sql, docs: LeasedDocs, limit: number) {
  const [settings] = yield* sql<{ edition: string | null; isRemoved: boolean }>`
    SELECT edition, docs_zip_url IS NULL AS "isRemoved" FROM project_docs WHERE ${isLeased(sql, docs)}`
  if (settings === undefined) return 0
  const kept = [docs.lease, settings.edition ?? ""]
  const pages = yield* eraseFrom(sql, "docs_pages", docs, limit, sql`edition <> ALL(${texts(kept)})`)
  if (pages === limit) return pages
  if (!settings.isRemoved) {
    yield* sql`UPDATE project_docs SET unclean_since = NULL WHERE ${isLeased(sql, docs)}`
    return pages
  }
  const questions = yield* eraseFrom(sql, "docs_questions", docs, limit - pages)
  if (pages + questions < limit)
    yield* sql`DELETE FROM project_docs WHERE ${isLeased(sql, docs)} AND docs_zip_url IS NULL`
  return pages + questions
})

/** Erases pages of a project, then its questions, then its settings, whose bytes count no more. Returns the number of rows. */
export const eraseDocs = Effect.fnUntraced(function* (sql: Sql, docs: DocsOf, limit: number) {
  // First of all, so that no worker adds pages, and no replica questions.
  const settings = yield* sql<{ bytes: number }>`
    DELETE FROM project_docs WHERE ${isOf(sql, docs)} RETURNING coalesce(bytes, 0)::float8 AS bytes`
  const left = limit - settings.length
  const pages = yield* eraseFrom(sql, "docs_pages", docs, left)
  const questions = yield* eraseFrom(sql, "docs_questions", docs, left - pages)
  return { rows: settings.length + pages + questions, bytes: settings[0]?.bytes ?? 0 }
})
