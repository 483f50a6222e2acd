import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { docsNotFound, type ListedPage, ProjectDocsRepository } from "../../domain/docs/ProjectDocsRepository.ts"
import type { Page } from "../../domain/chat/DocsPassages.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { audited } from "../audit/audited.ts"
import { date, inScope, withinBytes } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"
import { orgExists } from "../projects/links.ts"
import { projectCondition } from "../projects/repositoryLinks.ts"
import { decodeDocs, isOf, selectDocs, toRecord } from "./docsRows.ts"
import { clean, eraseRemovedQuestions } from "./eraseDocs.ts"
import { addPages, storeEdition } from "./storeEdition.ts"

/** Pages of one read; it also ends at 4 MiB. */
const maxReadPages = 500

/** The documentation of a project of the scope. */
const findDocs = (sql: SqlClient.SqlClient, scope: OrgScope, projectId: string) =>
  sql`
    ${selectDocs(sql)}
    WHERE p.id = ${projectId} AND ${inScope(sql, scope, "p.org_id")} AND docs_zip_url IS NOT NULL
      AND ${sql.literal(orgExists("p"))}`.pipe(
    decodeDocs,
    Effect.flatMap(([row]) => (row === undefined ? Effect.fail(docsNotFound()) : Effect.succeed(toRecord(row)))),
  )

/** What the owner does. */
const owners = (sql: SqlClient.SqlClient, usage: OrgUsage["Service"]) =>
  ({
    find: (scope, projectId) => findDocs(sql, scope, projectId).pipe(orUnavailable),

    put: (scope, projectId, { docsUrl, docsZipUrl, keepQuestions, public: isPublic }, now, entry) =>
      Effect.gen(function* () {
        yield* eraseRemovedQuestions(sql, scope, projectId)
        const put = yield* audited(
          sql,
          entry,
          sql`
          INSERT INTO project_docs AS d
            (org_id, project_id, docs_zip_url, docs_url, is_public, keep_questions, revision, updated_at)
          SELECT org_id, id, ${docsZipUrl}, ${docsUrl}::text, ${isPublic}::boolean, ${keepQuestions}::boolean, 1,
            ${date(now)}::timestamptz
          FROM projects WHERE ${projectCondition(sql, scope, projectId)}
          ON CONFLICT (org_id, project_id) DO UPDATE SET docs_zip_url = excluded.docs_zip_url,
            docs_url = excluded.docs_url, is_public = excluded.is_public, keep_questions = excluded.keep_questions,
            revision = d.revision + 1, updated_at = excluded.updated_at, lease = NULL, leased_until = NULL
          RETURNING org_id AS "orgId"`,
        )
        if (put.length === 0) return yield* projectNotFound()
        return yield* findDocs(sql, scope, projectId)
      }).pipe(sql.withTransaction, orUnavailable),

    remove: (scope, projectId, now, entry) =>
      audited(
        sql,
        entry,
        sql`
        UPDATE project_docs d SET docs_zip_url = NULL, docs_url = NULL, is_public = false, keep_questions = false,
          revision = revision + 1, updated_at = ${date(now)}, lease = NULL, leased_until = NULL, edition = NULL,
          bytes = NULL
        FROM (
          SELECT d.org_id, d.project_id, coalesce(bytes, 0)::float8 AS bytes
          FROM project_docs d JOIN projects ON id = d.project_id AND projects.org_id = d.org_id
          WHERE id = ${projectId} AND ${inScope(sql, scope, "projects.org_id")} AND ${sql.literal(orgExists())}
            AND docs_zip_url IS NOT NULL
          FOR UPDATE OF d
        ) AS old
        WHERE d.org_id = old.org_id AND d.project_id = old.project_id
        RETURNING d.org_id AS "orgId", old.bytes`,
      ).pipe(
        orUnavailable,
        Effect.flatMap(([old]) =>
          old === undefined
            ? Effect.fail(docsNotFound())
            : Effect.sync(() => usage.addBytes(old["orgId"] as string, -Number(old["bytes"]))),
        ),
      ),
  }) satisfies Partial<ProjectDocsRepository["Service"]>

/** What workers do. */
const workers = (sql: SqlClient.SqlClient, stored: StoredBytes.StoredBytes) =>
  ({
    scan: (after, limit) =>
      sql`
      ${selectDocs(sql)}
      WHERE (d.org_id, d.project_id) > (${after?.orgId ?? ""}, ${after?.projectId ?? ""}) AND ${sql.literal(orgExists("p"))}
      ORDER BY d.org_id, d.project_id LIMIT ${limit}`.pipe(
        decodeDocs,
        Effect.map((rows) => rows.map(toRecord)),
        orUnavailableWithin("sweep"),
      ),

    claim: (docs, revision, now, until) =>
      sql`
      UPDATE project_docs SET lease = ${docs.lease}, leased_until = ${date(until)}, unclean_since = ${date(now)}
      WHERE ${isOf(sql, docs)} AND revision = ${revision} AND (leased_until IS NULL OR leased_until <= ${date(now)})
      RETURNING 1`.pipe(
        Effect.map((rows) => rows.length > 0),
        orUnavailableWithin("sweep"),
      ),

    addPages: (docs, pages) => addPages(sql, docs, pages).pipe(orUnavailableWithin("sweep")),
    store: (docs, edition) => storeEdition(sql, stored, docs, edition),

    fail: (docs, { at, attempts, error, target }) =>
      sql`
      UPDATE project_docs SET failed_target = ${target}, attempts = ${attempts}, error = ${error}, failed_at = ${date(at)},
        lease = NULL, leased_until = NULL
      WHERE ${isOf(sql, docs)} AND lease = ${docs.lease}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),

    release: (docs) =>
      sql`
      UPDATE project_docs SET lease = NULL, leased_until = NULL WHERE ${isOf(sql, docs)} AND lease = ${docs.lease}`.pipe(
        Effect.asVoid,
        orUnavailableWithin("sweep"),
      ),

    clean: (docs, limit) => clean(sql, docs, limit).pipe(sql.withTransaction, orUnavailableWithin("sweep")),
  }) satisfies Partial<ProjectDocsRepository["Service"]>

/** Documentation of projects in PostgreSQL. */
export const layer = Layer.effect(
  ProjectDocsRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const isIn = (docs: { readonly orgId: string; readonly projectId: string }, edition: string) =>
      sql`${isOf(sql, docs)} AND edition = ${edition}`

    return ProjectDocsRepository.of({
      ...owners(sql, usage),
      ...workers(sql, yield* StoredBytes.make),

      pages: (docs, edition, after) => {
        const rows = sql`
          SELECT slug, markdown FROM docs_pages WHERE ${isIn(docs, edition)} AND slug > ${after ?? ""}
          ORDER BY slug LIMIT ${maxReadPages}`
        return sql<Page>`
          SELECT slug, markdown FROM (${withinBytes(sql, rows, "slug", ["slug", "markdown"])}) AS page ORDER BY slug`.pipe(
          Effect.map((pages) => pages.map(({ markdown, slug }) => ({ slug, markdown }))),
          orUnavailable,
        )
      },

      listPages: (docs, edition) =>
        sql<ListedPage>`
          SELECT slug, title, description FROM docs_pages WHERE ${isIn(docs, edition)} ORDER BY slug`.pipe(
          Effect.map((pages) => pages.map(({ description, slug, title }) => ({ slug, title, description }))),
          orUnavailable,
        ),
    } satisfies ProjectDocsRepository["Service"])
  }),
).pipe(Layer.provide(OrgUsage.layer))
