import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { copyOrg } from "../orgs/copyOrg.ts"

/**
 * Returns the id of the default org, and creates the org when there is none. Runs in a transaction. Of concurrent calls the
 * unique index lets one insert the org, and the others wait for it.
 */
export const defaultOrg = (sql: SqlClient.SqlClient, newId: string, now: Date) =>
  Effect.gen(function* () {
    const find = sql<{ id: string }>`SELECT id FROM orgs WHERE is_default`
    const [existing] = yield* find
    if (existing !== undefined) return existing.id
    yield* sql`
      INSERT INTO orgs (id, name, is_default, created_at) VALUES (${newId}, 'Default', true, ${now})
      ON CONFLICT DO NOTHING`
    const [created] = yield* find
    yield* copyOrg(sql, created!.id)
    return created!.id
  })

/** The provider, owner and name of a repository, in any case. */
export interface RepositoryName {
  readonly provider: string
  readonly owner: string
  readonly repo: string
}

/** SQL: the provider of a project's link. Links from before there were several have none, which is GitHub. */
export const linkProvider = "coalesce(host_provider, 'github')"

/**
 * SQL: whether the org of a project exists. The projects of a deleted org have rows until a sweep has removed them. Not an
 * EXISTS: PostgreSQL makes a join of it, and a page of all projects then reads all of them. It is never NULL, so that NOT can
 * stand before it.
 */
export const orgExists = (project = "projects") => `((SELECT true FROM orgs WHERE id = ${project}.org_id) IS NOT NULL)`

/** The condition of projects that are linked to a repository of this name. */
export const isLinkedByName = (sql: SqlClient.SqlClient, { owner, provider, repo }: RepositoryName) =>
  sql`lower(host_owner) = lower(${owner}) AND lower(host_repo) = lower(${repo}) AND ${sql.literal(linkProvider)} = ${provider}`

/** Locks the name of a repository until the transaction ends, so that nobody else links it to a project. */
export const lockRepositoryName = (sql: SqlClient.SqlClient, { owner, provider, repo }: RepositoryName) =>
  lock(sql, `name:${provider === "github" ? "" : `${provider}:`}${owner}/${repo}`.toLowerCase())

/**
 * Locks the id of a repository in the same way. To avoid deadlocks, take this lock before the lock of the name. Issuers share
 * the lock of an id, which costs nothing and keeps out replicas of the version before.
 */
export const lockRepositoryId = (sql: SqlClient.SqlClient, repositoryId: string) => lock(sql, `id:${repositoryId}`)

const lock = (sql: SqlClient.SqlClient, key: string) =>
  sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:repository:${key}`}, 0))`
