import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { orgNotFound } from "../../domain/Caller.ts"
import { Conflict } from "../../domain/Errors.ts"
import { Project } from "../../domain/Project.ts"
import { projectNotFound, ProjectRepository } from "../../domain/Projects.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { afterCursor, decodeRows, inScope } from "./fragments.ts"
import { defaultOrg, lockRepositoryName } from "./links.ts"

const Row = Schema.Struct({
  ...Project.fields,
  createdAt: Schema.DateTimeUtcFromDate,
  updatedAt: Schema.DateTimeUtcFromDate,
})
const decode = decodeRows(Row)

/** Projects in PostgreSQL. */
export const layer = Layer.effect(
  ProjectRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const columns = sql.literal(`
      id AS "projectId", org_id AS "orgId", name, subdomain, current_deployment_id AS "currentDeploymentId",
      default_branch AS "defaultBranch", host_owner AS "hostOwner", host_repo AS "hostRepo",
      created_at AS "createdAt", updated_at AS "updatedAt"`)

    const oneOr = <E>(missing: () => E) =>
      Effect.flatMap(([project]: ReadonlyArray<Project>) =>
        project === undefined ? Effect.fail(missing()) : Effect.succeed(project),
      )

    return ProjectRepository.of({
      insert: ({ projectId, name, orgId, defaultOrgId, now }) => {
        const at = DateTime.toDateUtc(now)
        const insertInto = (org: string) =>
          sql`
            INSERT INTO projects (id, org_id, name, created_at, updated_at)
            SELECT ${projectId}, id, ${name}, ${at}, ${at} FROM orgs WHERE id = ${org}
            RETURNING ${columns}`.pipe(decode)
        const inserted =
          orgId === undefined
            ? sql.withTransaction(Effect.flatMap(defaultOrg(sql, defaultOrgId, at), insertInto))
            : insertInto(orgId)
        return inserted.pipe(orUnavailable, oneOr(orgNotFound))
      },

      find: (scope, projectId) =>
        sql`SELECT ${columns} FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)}`.pipe(
          decode,
          orUnavailable,
          oneOr(projectNotFound),
        ),

      list: (scope, page) =>
        sql`
          SELECT ${columns} FROM projects
          WHERE ${inScope(sql, scope)} AND ${afterCursor(sql, page)}
          ORDER BY id LIMIT ${page.limit + 1}`.pipe(decode, orUnavailable),

      update: (scope, projectId, changes, now) =>
        Effect.gen(function* () {
          const { hostOwner, hostRepo, ...rest } = changes
          const sets = [sql`updated_at = ${DateTime.toDateUtc(now)}`]
          if (rest.name !== undefined) sets.push(sql`name = ${rest.name}`)
          if (rest.defaultBranch !== undefined) sets.push(sql`default_branch = ${rest.defaultBranch}`)
          if (rest.subdomain !== undefined) sets.push(sql`subdomain = ${rest.subdomain}`)
          if (hostOwner != null && hostRepo != null) {
            yield* lockRepositoryName(sql, hostOwner, hostRepo)
            // The same repository again keeps the id that its runs proved; another one has yet to prove its own.
            sets.push(
              sql`repository_id = CASE WHEN lower(host_owner) = lower(${hostOwner}) AND lower(host_repo) = lower(${hostRepo})
                THEN repository_id END`,
            )
          } else if (hostOwner === null) {
            sets.push(sql`repository_id = NULL`)
          }
          if (hostOwner !== undefined) sets.push(sql`host_owner = ${hostOwner}`, sql`host_repo = ${hostRepo}`)
          const updated = yield* sql`
            UPDATE projects SET ${sql.csv(sets)}
            WHERE id = ${projectId} AND ${inScope(sql, scope)}
            RETURNING ${columns}`.pipe(decode)
          // Only then: a project out of scope is not found, whatever the repository.
          if (updated.length > 0 && hostOwner != null && hostRepo != null) {
            const taken = yield* sql`
              SELECT id FROM projects
              WHERE lower(host_owner) = lower(${hostOwner}) AND lower(host_repo) = lower(${hostRepo})
                AND id <> ${projectId}`
            if (taken.length > 0) {
              return yield* new Conflict({
                error: "hostOwner, hostRepo: Another project is linked to this repository.",
              })
            }
          }
          return updated
        }).pipe(
          sql.withTransaction,
          Effect.catchIf(
            (error) => SqlError.isSqlError(error) && error.reason._tag === "UniqueViolation",
            () => Effect.fail(new Conflict({ error: "subdomain: Another project has this subdomain." })),
          ),
          orUnavailable,
          oneOr(projectNotFound),
        ),
    })
  }),
)
