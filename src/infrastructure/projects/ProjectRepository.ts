import { Effect, Layer, Schema } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { orgNotFound } from "../../domain/Principal.ts"
import { Conflict } from "../../domain/Errors.ts"
import { Project } from "../../domain/projects/Project.ts"
import { type NewProject, projectNotFound, ProjectRepository } from "../../domain/projects/Projects.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { auditedTogether } from "../audit/auditedTogether.ts"
import { afterCursor, date, decodePage, decodeRows, inScope, pageOf, Time } from "../database/fragments.ts"
import * as Limited from "../orgs/limited.ts"
import { defaultOrg, hasName, lockRepositoryName, type RepositoryName } from "./links.ts"

const Row = Schema.Struct({
  ...Project.fields,
  createdAt: Time,
  updatedAt: Time,
})
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

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

    const limit = yield* Limited.make("projects")

    /** Inserts a project, into the default org where none is named. */
    const insertInto = yield* auditedTogether<
      Pick<NewProject, "name" | "now"> & {
        readonly id: string
        readonly orgId: string | null
        readonly room: boolean
      },
      typeof Row.Encoded & { readonly id: string }
    >(
      sql,
      `id text, name text, "orgId" text, now timestamptz, room boolean`,
      sql`
        INSERT INTO projects (id, org_id, name, created_at, updated_at)
        SELECT asked.id, org.id, asked.name, now, now FROM asked CROSS JOIN LATERAL (
          SELECT id, limits FROM orgs WHERE id = coalesce("orgId", (SELECT id FROM orgs WHERE is_default)) OFFSET 0
        ) AS org
        WHERE ${limit.guard(sql`asked.room`)}
        RETURNING id, ${columns}`,
    )

    return ProjectRepository.of({
      insert: ({ projectId, name, orgId, defaultOrgId, now }, entry) => {
        const project = (org: string | null) =>
          limit.admit(
            {
              key: org ?? "the default org",
              from: () => sql`orgs org WHERE id = coalesce(${org}, (SELECT id FROM orgs WHERE is_default))`,
            },
            (room) => insertInto({ id: projectId, name, orgId: org, now, room }, entry),
          )
        const inDefaultOrg = Effect.flatMap(project(null), (made) =>
          made === undefined
            ? defaultOrg(sql, defaultOrgId, date(now)).pipe(Effect.flatMap(project), sql.withTransaction, orUnavailable)
            : Effect.succeed(made),
        )
        return (orgId === undefined ? inDefaultOrg : project(orgId)).pipe(
          Effect.map((made) => (made === undefined ? [] : [made])),
          decode,
          oneOr(orgNotFound),
        )
      },

      find: (scope, projectId) =>
        sql`SELECT ${columns} FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)}`.pipe(
          decode,
          orUnavailable,
          oneOr(projectNotFound),
        ),

      list: (scope, page) =>
        pageOf(
          sql,
          page,
          sql`SELECT ${columns} FROM projects WHERE ${inScope(sql, scope)} AND ${afterCursor(sql, page)}`,
          "projectId",
          ["name", "subdomain", "defaultBranch", "hostOwner", "hostRepo"],
        ).pipe(decodeList, orUnavailable),

      update: (scope, projectId, changes, now, entry) => {
        const { hostOwner, hostRepo, ...rest } = changes
        const link = hostOwner != null && hostRepo != null ? { owner: hostOwner, repo: hostRepo } : undefined
        const sets = [sql`updated_at = ${date(now)}`]
        if (rest.name !== undefined) sets.push(sql`name = ${rest.name}`)
        if (rest.defaultBranch !== undefined) sets.push(sql`default_branch = ${rest.defaultBranch}`)
        if (rest.subdomain !== undefined) sets.push(sql`subdomain = ${rest.subdomain}`)
        // The same repository again keeps the id that its runs proved; another one has yet to prove its own.
        if (link !== undefined) {
          sets.push(sql`repository_id = CASE WHEN ${hasName(sql, link)} THEN repository_id END`)
        } else if (hostOwner === null) sets.push(sql`repository_id = NULL`)
        if (hostOwner !== undefined) sets.push(sql`host_owner = ${hostOwner}`, sql`host_repo = ${hostRepo}`)
        const updated = audited(
          sql,
          entry,
          sql`
            UPDATE projects SET ${sql.csv(sets)}
            WHERE id = ${projectId} AND ${inScope(sql, scope)}
            RETURNING ${columns}`,
        ).pipe(decode)
        const linked = Effect.fnUntraced(function* (repository: RepositoryName) {
          yield* lockRepositoryName(sql, repository)
          const projects = yield* updated
          // Only then: a project out of scope is not found, whatever the repository.
          if (projects.length === 0) return projects
          const taken = yield* sql`SELECT id FROM projects WHERE ${hasName(sql, repository)} AND id <> ${projectId}`
          if (taken.length === 0) return projects
          return yield* new Conflict({ error: "hostOwner, hostRepo: Another project is linked to this repository." })
        }, sql.withTransaction)
        return (link === undefined ? updated : linked(link)).pipe(
          Effect.catchIf(
            (error) =>
              SqlError.isSqlError(error) &&
              error.reason._tag === "UniqueViolation" &&
              error.reason.constraint === "projects_subdomain",
            () => Effect.fail(new Conflict({ error: "subdomain: Another project has this subdomain." })),
          ),
          orUnavailable,
          oneOr(projectNotFound),
        )
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
