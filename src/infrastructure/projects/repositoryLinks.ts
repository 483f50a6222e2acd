import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { Conflict } from "../../domain/Errors.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { lockName } from "../database/boundedTransactions.ts"
import { inScope } from "../database/fragments.ts"

/**
 * Returns the id of the default org, and creates the org when there is none, whatever other orgs there are. Runs in a
 * transaction. Of concurrent calls the unique index lets one insert the org, and the others wait for it; the update
 * changes nothing and returns its row, and inserts again when the org is deleted meanwhile.
 */
export const defaultOrg = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, newId: string, now: Date) {
  const [existing] = yield* sql<{ id: string }>`SELECT id FROM orgs WHERE is_default`
  if (existing !== undefined) return existing.id
  const [created] = yield* sql<{ id: string }>`
    INSERT INTO orgs (id, name, is_default, created_at) VALUES (${newId}, 'Default', true, ${now})
    ON CONFLICT (is_default) WHERE is_default DO UPDATE SET name = orgs.name
    RETURNING id`
  return created!.id
})

/** The provider, owner and name of a repository, in any case. */
interface RepositoryName {
  readonly provider: string
  readonly owner: string
  readonly repo: string
}

/** SQL: the provider of a project's link. Links from before there were several have none, which is GitHub. */
export const linkProvider = "coalesce(host_provider, 'github')"

/**
 * SQL: whether the org of a project exists. The projects of a deleted org have rows until a sweep has removed them. Not
 * an EXISTS: PostgreSQL makes a join of it, and a page of all projects then reads all of them. It is never NULL, so
 * that NOT can stand before it.
 */
export const orgExists = (project = "projects") => `((SELECT true FROM orgs WHERE id = ${project}.org_id) IS NOT NULL)`

/** The condition of projects that are linked to a repository of this name. */
export const isLinkedByName = (sql: SqlClient.SqlClient, { owner, provider, repo }: RepositoryName) =>
  sql`lower(host_owner) = lower(${owner}) AND lower(host_repo) = lower(${repo}) AND ${sql.literal(linkProvider)} = ${provider}`

/** Locks the name of a repository until the transaction ends, so that nobody else links it to a project. */
export const lockRepositoryName = (sql: SqlClient.SqlClient, { owner, provider, repo }: RepositoryName) =>
  lock(sql, `name:${provider === "github" ? "" : `${provider}:`}${owner}/${repo}`.toLowerCase())

/**
 * Locks the id of a repository in the same way. To avoid deadlocks, take this lock before the lock of the name. Issuers
 * share the lock of an id, which costs nothing.
 */
export const lockRepositoryId = (sql: SqlClient.SqlClient, repositoryId: string) => lock(sql, `id:${repositoryId}`)

const lock = (sql: SqlClient.SqlClient, key: string) => lockName(sql, `repository:${key}`)

type Sql = SqlClient.SqlClient

/** The condition of a project of the scope, and of an org that exists. */
export const projectCondition = (sql: Sql, scope: OrgScope, projectId: string) =>
  sql`id = ${projectId} AND ${inScope(sql, scope)} AND ${sql.literal(orgExists())}`

/** What a run has proved about a link, or what was measured by it. Another repository must prove its own. */
const proved = [
  "repository_id",
  "issuer",
  "repository_owner_id",
  "newest_run_id",
  "newest_run_attempt",
  "newest_run_at",
]
const linked = ["host_provider", "host_owner", "host_repo", "pin_workflow", "pin_environment"]

/** The assignments of an UPDATE that links a project. A link to the same repository keeps what its runs have proved. */
export const linkAssignments = (sql: Sql, repository: RepositoryName) => [
  ...proved.map((column) => sql`${sql(column)} = CASE WHEN ${isLinkedByName(sql, repository)} THEN ${sql(column)} END`),
  sql`host_provider = ${repository.provider}`,
  sql`host_owner = ${repository.owner}`,
  sql`host_repo = ${repository.repo}`,
]

/** The assignments of an UPDATE that removes the link of a project. */
export const unlinkAssignments = (sql: Sql) => [...proved, ...linked].map((column) => sql`${sql(column)} = NULL`)

/** Runs an update that links a project; fails with `Conflict` when another project is linked to the repository. */
export const linkOrConflict = <A, E, R>(
  sql: Sql,
  projectId: string,
  repository: RepositoryName,
  update: Effect.Effect<ReadonlyArray<A>, E, R>,
) =>
  Effect.gen(function* () {
    yield* lockRepositoryName(sql, repository)
    const projects = yield* update
    // Checked first: a project out of scope is not found, whatever the repository.
    if (projects.length === 0) return projects
    const others = yield* sql`
      SELECT id FROM projects WHERE ${isLinkedByName(sql, repository)} AND id <> ${projectId} AND ${sql.literal(orgExists())}`
    if (others.length === 0) return projects
    return yield* new Conflict({
      error: "hostOwner and hostRepo: another project is linked to this repository. Remove that link first.",
    })
  }).pipe(sql.withTransaction)
