import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { StoredEdition } from "../../domain/docs/ProjectDocs.ts"
import type { DocsOf, LeasedDocs, NewPage } from "../../domain/docs/ProjectDocsRepository.ts"
import { texts } from "../database/arrays.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { date, inScope } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import type { StoredBytes } from "../orgs/storedBytes.ts"

type Sql = SqlClient.SqlClient

/** The condition of the rows of one project's documentation. */
export const isOf = (sql: Sql, { orgId, projectId }: DocsOf) => sql`org_id = ${orgId} AND project_id = ${projectId}`

const isLeased = (sql: Sql, docs: LeasedDocs) => sql`${isOf(sql, docs)} AND lease = ${docs.lease}`

/** Adds pages to the edition of the lease, while the lease holds. */
export const addPages = (sql: Sql, docs: LeasedDocs, pages: ReadonlyArray<NewPage>) =>
  Effect.map(
    sql`
      WITH held AS (SELECT 1 FROM project_docs WHERE ${isLeased(sql, docs)} FOR SHARE),
      added AS (
        INSERT INTO docs_pages (org_id, project_id, edition, slug, title, description, markdown)
        SELECT ${docs.orgId}, ${docs.projectId}, ${docs.lease}, slug, title, description, markdown
        FROM unnest(${texts(pages.map(({ slug }) => slug))}, ${texts(pages.map(({ title }) => title))},
          ${texts(pages.map(({ description }) => description))}, ${texts(pages.map(({ markdown }) => markdown))})
          AS page (slug, title, description, markdown)
        WHERE EXISTS (SELECT FROM held)
      )
      SELECT 1 FROM held`,
    (held) => held.length > 0,
  )

/** Replaces the stored edition while the lease holds. Fails when the org has no room for its bytes. */
export const storeEdition = Effect.fnUntraced(function* (
  sql: Sql,
  stored: StoredBytes,
  docs: LeasedDocs,
  edition: StoredEdition,
) {
  const [before] = yield* orUnavailableWithin("sweep")(
    sql<{ bytes: number }>`
      SELECT coalesce(bytes, 0)::float8 AS bytes FROM project_docs WHERE ${isLeased(sql, docs)}`,
  )
  if (before === undefined) return
  const more = edition.bytes - before.bytes
  // With the bytes from before, because the owner may remove the documentation meanwhile. `fits` needs the counted bytes.
  const replace = Effect.suspend(
    () => sql`
    UPDATE project_docs d SET edition = ${edition.edition}, digest = ${edition.digest}, stored_target = ${edition.target},
      stored_deployment_id = ${edition.deploymentId}, pages = ${edition.pages}, bytes = ${edition.bytes}::bigint,
      characters = ${edition.characters}::bigint, stored_at = ${date(edition.at)}, lease = NULL, leased_until = NULL, unclean_since = ${date(edition.at)},
      failed_target = NULL, attempts = NULL, error = NULL, failed_at = NULL
    FROM orgs org
    WHERE org.id = d.org_id AND ${isLeased(sql, docs)} AND coalesce(bytes, 0) = ${before.bytes}::bigint
      AND ${more > 0 ? stored.fits(docs.orgId, more) : sql.literal("true")}
    RETURNING 1`,
  ).pipe(orUnavailableWithin("sweep"))
  const replaced = yield* stored.storing(docs.orgId, more, (rows) => rows.length > 0, replace)
  if (replaced.length > 0 || more <= 0) return
  const held = yield* orUnavailableWithin("sweep")(sql`SELECT 1 FROM project_docs WHERE ${isLeased(sql, docs)}`)
  if (held.length > 0) return yield* stored.refuse(docs.orgId)
})

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
