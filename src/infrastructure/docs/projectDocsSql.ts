import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { OrgScope } from "../../domain/Principal.ts"
import type { Page } from "../../domain/docs/DocsPassages.ts"
import type { DocsRecord } from "../../domain/docs/ProjectDocs.ts"
import {
  docsNotFound,
  type DocsOf,
  type LeasedDocs,
  type ListedPage,
  ProjectDocsRepository,
} from "../../domain/docs/ProjectDocsRepository.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { audited } from "../audit/audited.ts"
import { date, decodeRows, deleteFirst, inScope, texts, Time, withinBytes } from "../database/fragments.ts"
import { oneAtATime } from "../database/boundedTransactions.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import { orgExists, projectCondition } from "../projects/repositoryLinks.ts"
import { DocsWakeup } from "../../domain/docs/StoredDocs.ts"
import { DocsFetcher, docsInterval } from "../../domain/docs/DocsFetcher.ts"
import { faultPlace } from "../../domain/Errors.ts"

/** Pages of one read; it also ends at 4 MiB. */
const maxReadPages = 500

/** Documentation of projects in PostgreSQL. */
export const layer = Layer.effect(
  ProjectDocsRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const usage = yield* OrgUsage
    const stored = yield* ByteLimit.make
    const isIn = (docs: { readonly orgId: string; readonly projectId: string }, edition: string) =>
      sql`${isOf(sql, docs)} AND edition = ${edition}`

    /** The documentation of a project in the scope. */
    const findDocs = (scope: OrgScope, projectId: string) =>
      sql`
        ${selectDocs()}
        WHERE p.id = ${projectId} AND ${inScope(sql, scope, "p.org_id")} AND docs_zip_url IS NOT NULL
          AND ${sql.literal(orgExists("p"))}`.pipe(
        decodeDocs,
        Effect.flatMap(([row]) => (row === undefined ? Effect.fail(docsNotFound()) : Effect.succeed(toRecord(row)))),
      )

    /** The start of a SELECT of documentation `d` with its project `p`, up to its WHERE. */
    const selectDocs = () =>
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

    /** The condition of the documentation that a worker has the lease of. */
    const isLeased = (docs: LeasedDocs) => sql`${isOf(sql, docs)} AND lease = ${docs.lease}`

    /** Erases the questions of documentation that was removed, which the next setting would show again. */
    const eraseRemovedQuestions = Effect.fnUntraced(function* (scope: OrgScope, projectId: string) {
      const [removed] = yield* sql<DocsOf>`
        SELECT d.org_id AS "orgId", d.project_id AS "projectId"
        FROM projects JOIN project_docs d ON d.org_id = projects.org_id AND d.project_id = projects.id
        WHERE projects.id = ${projectId} AND ${inScope(sql, scope, "projects.org_id")} AND docs_zip_url IS NULL
        FOR UPDATE OF d`
      if (removed === undefined) return
      // At most those that a project keeps.
      while ((yield* eraseFrom(sql, "docs_questions", removed, eraseBatchSize)) === eraseBatchSize);
    })

    return ProjectDocsRepository.of({
      find: (scope, projectId) => findDocs(scope, projectId).pipe(orUnavailable),

      put: (scope, projectId, { docsUrl, docsZipUrl, keepQuestions, public: isPublic }, now, entry) =>
        Effect.gen(function* () {
          yield* eraseRemovedQuestions(scope, projectId)
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
          return yield* findDocs(scope, projectId)
        }).pipe(
          (put) => stored.changing("docs", sql`project_id = ${projectId} AND ${inScope(sql, scope)}`, put),
          (put) => oneAtATime(sql, `docs:${projectId}`, put),
          orUnavailable,
        ),

      remove: (scope, projectId, now, entry) =>
        audited<{ readonly orgId: string; readonly bytes: number }>(
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
            old === undefined ? Effect.fail(docsNotFound()) : Effect.sync(() => usage.addBytes(old.orgId, -old.bytes)),
          ),
        ),

      scan: (after, limit) =>
        sql`
          ${selectDocs()}
          WHERE (d.org_id, d.project_id) > (${after?.orgId ?? ""}, ${after?.projectId ?? ""})
            AND ${sql.literal(orgExists("p"))}
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

      addPages: (docs, pages) =>
        Effect.map(
          sql`
            WITH held AS (SELECT 1 FROM project_docs WHERE ${isLeased(docs)} FOR SHARE),
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
        ).pipe(orUnavailableWithin("sweep")),
      store: Effect.fnUntraced(function* (docs, edition) {
        const [before] = yield* orUnavailableWithin("sweep")(
          sql<{ bytes: number }>`
            SELECT coalesce(bytes, 0)::float8 AS bytes FROM project_docs WHERE ${isLeased(docs)}`,
        )
        if (before === undefined) return
        const more = edition.bytes - before.bytes
        // Only if the bytes are still those that were read: the owner may remove the documentation meanwhile.
        // Suspended, because `fits` reads the counted bytes.
        const replace = Effect.suspend(
          () => sql`
            UPDATE project_docs d SET edition = ${edition.edition}, digest = ${edition.digest},
              stored_target = ${edition.target},
              stored_deployment_id = ${edition.deploymentId}, pages = ${edition.pages},
              bytes = ${edition.bytes}::bigint, characters = ${edition.characters}::bigint,
              stored_at = ${date(edition.at)}, lease = NULL, leased_until = NULL, unclean_since = ${date(edition.at)},
              failed_target = NULL, attempts = NULL, error = NULL, failed_at = NULL
            FROM orgs org
            WHERE org.id = d.org_id AND ${isLeased(docs)} AND coalesce(bytes, 0) = ${before.bytes}::bigint
              AND ${more > 0 ? stored.fits(docs.orgId) : sql.literal("true")}
            RETURNING 1`,
        ).pipe(orUnavailableWithin("sweep"))
        const replaced = yield* stored.storing(docs.orgId, more, (rows) => (rows.length > 0 ? more : 0), replace)
        if (replaced.length > 0 || more <= 0) return
        const held = yield* orUnavailableWithin("sweep")(sql`SELECT 1 FROM project_docs WHERE ${isLeased(docs)}`)
        if (held.length > 0) return yield* stored.refuse(docs.orgId)
      }),

      fail: (docs, { at, attempts, error, target }) =>
        sql`
          UPDATE project_docs SET failed_target = ${target}, attempts = ${attempts}, error = ${error},
            failed_at = ${date(at)},
            lease = NULL, leased_until = NULL
          WHERE ${isOf(sql, docs)} AND lease = ${docs.lease}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),

      release: (docs) =>
        sql`
          UPDATE project_docs SET lease = NULL, leased_until = NULL WHERE ${isOf(sql, docs)}
            AND lease = ${docs.lease}`.pipe(Effect.asVoid, orUnavailableWithin("sweep")),

      clean: Effect.fnUntraced(
        function* (docs, limit) {
          const [settings] = yield* sql<{ edition: string | null; isRemoved: boolean }>`
            SELECT edition, docs_zip_url IS NULL AS "isRemoved" FROM project_docs WHERE ${isLeased(docs)}`
          if (settings === undefined) return 0
          const kept = [docs.lease, settings.edition ?? ""]
          const pages = yield* eraseFrom(sql, "docs_pages", docs, limit, sql`edition <> ALL(${texts(kept)})`)
          if (pages === limit) return pages
          if (!settings.isRemoved) {
            yield* sql`UPDATE project_docs SET unclean_since = NULL WHERE ${isLeased(docs)}`
            return pages
          }
          const questions = yield* eraseFrom(sql, "docs_questions", docs, limit - pages)
          if (pages + questions < limit)
            yield* sql`DELETE FROM project_docs WHERE ${isLeased(docs)} AND docs_zip_url IS NULL`
          return pages + questions
        },
        sql.withTransaction,
        orUnavailableWithin("sweep"),
      ),

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
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

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
const decodeDocs = decodeRows(Row)

const toRecord = (row: typeof Row.Type): DocsRecord => {
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

/** The condition of the rows of one project's documentation. */
export const isOf = (sql: SqlClient.SqlClient, { orgId, projectId }: DocsOf) =>
  sql`org_id = ${orgId} AND project_id = ${projectId}`

/** Erases up to `limit` rows of a table that belong to a project's documentation. */
export const eraseFrom = (
  sql: SqlClient.SqlClient,
  table: string,
  docs: DocsOf,
  limit: number,
  which = sql.literal("true"),
) => deleteFirst(sql, table, sql`${isOf(sql, docs)} AND ${which} LIMIT ${limit}`)

/** Questions that one statement erases. */
const eraseBatchSize = 2_000

/**
 * Erases pages of a project, then its questions, then its settings, whose bytes count no more. Returns the number of
 * rows.
 */
export const eraseDocs = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, docs: DocsOf, limit: number) {
  // First of all, so that no worker adds pages, and no replica questions.
  const settings = yield* sql<{ bytes: number }>`
    DELETE FROM project_docs WHERE ${isOf(sql, docs)} RETURNING coalesce(bytes, 0)::float8 AS bytes`
  const left = limit - settings.length
  const pages = yield* eraseFrom(sql, "docs_pages", docs, left)
  const questions = yield* eraseFrom(sql, "docs_questions", docs, left - pages)
  return { rows: settings.length + pages + questions, bytes: settings[0]?.bytes ?? 0 }
})

/**
 * Fetches the documentation of projects while there is work, and looks for work when it is woken and every five
 * seconds.
 */
export const docsWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { pass } = yield* DocsFetcher
    const { wait } = yield* DocsWakeup
    yield* pass.pipe(
      Effect.catch((error) =>
        Effect.as(Effect.logWarning(`Documentation is not looked through: ${error.error}`), false),
      ),
      Effect.catchDefect((fault) =>
        Effect.as(Effect.logError("Documentation is not looked through", faultPlace(fault)), false),
      ),
      Effect.flatMap((isBusy) => (isBusy ? Effect.void : Effect.race(wait, Effect.sleep(docsInterval)))),
      Effect.forever,
      Effect.forkScoped,
    )
  }),
)
