import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { StoredEdition } from "../../domain/docs/ProjectDocs.ts"
import type { LeasedDocs, NewPage } from "../../domain/docs/ProjectDocsRepository.ts"
import { texts } from "../database/arrays.ts"
import { date } from "../database/fragments.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"
import { isLeased } from "./docsRows.ts"
import type { StoredBytes } from "../orgs/storedBytes.ts"

type Sql = SqlClient.SqlClient

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
