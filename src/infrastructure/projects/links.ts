import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/**
 * The default org's id, making the org when there is none. In a transaction; however many arrive together, the unique
 * index lets one of them make it and the others wait for that one.
 */
export const defaultOrg = (sql: SqlClient.SqlClient, newId: string, now: Date) =>
  Effect.gen(function* () {
    const find = sql<{ id: string }>`SELECT id FROM orgs WHERE is_default`
    const [present] = yield* find
    if (present !== undefined) return present.id
    yield* sql`
      INSERT INTO orgs (id, name, is_default, created_at) VALUES (${newId}, 'Default', true, ${now})
      ON CONFLICT DO NOTHING`
    const [made] = yield* find
    return made!.id
  })

/** A repository's owner and name, in any case. */
export interface RepositoryName {
  readonly owner: string
  readonly repo: string
}

/** The condition of a WHERE: projects that are linked to a repository of this name. */
export const hasName = (sql: SqlClient.SqlClient, { owner, repo }: RepositoryName) =>
  sql`lower(host_owner) = lower(${owner}) AND lower(host_repo) = lower(${repo})`

/** Keeps two transactions from linking one repository name at the same time, till this one ends. */
export const lockRepositoryName = (sql: SqlClient.SqlClient, { owner, repo }: RepositoryName) =>
  lock(sql, `name:${owner}/${repo}`.toLowerCase())

/** The same for a repository's id. Taken before the lock of the name, by everyone who takes both. */
export const lockRepositoryId = (sql: SqlClient.SqlClient, repositoryId: string) => lock(sql, `id:${repositoryId}`)

const lock = (sql: SqlClient.SqlClient, what: string) =>
  sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:repository:${what}`}, 0))`
