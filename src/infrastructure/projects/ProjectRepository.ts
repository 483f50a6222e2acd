import type { DateTime } from "effect"
import { Effect, Layer, Schema } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { orgNotFound, type OrgScope } from "../../domain/Principal.ts"
import { Conflict } from "../../domain/Errors.ts"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { Project } from "../../domain/projects/Project.ts"
import { type NewProject, projectNotFound, ProjectRepository } from "../../domain/projects/Projects.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { audited } from "../audit/audited.ts"
import { auditedTogether } from "../audit/auditedTogether.ts"
import { afterCursor, date, decodePage, decodeRows, inScope, pageOf, Time } from "../database/fragments.ts"
import * as Limited from "../orgs/limited.ts"
import { defaultOrg, isLinkedByName, lockRepositoryName, type RepositoryName } from "./links.ts"

const Row = Schema.Struct({
  ...Project.fields,
  createdAt: Time,
  updatedAt: Time,
})
const decode = decodeRows(Row)
const decodeList = decodePage(Row)

type ProjectChanges = Parameters<ProjectRepository["Service"]["update"]>[2]

const columns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    id AS "projectId", org_id AS "orgId", name, subdomain, current_deployment_id AS "currentDeploymentId",
    default_branch AS "defaultBranch", host_owner AS "hostOwner", host_repo AS "hostRepo",
    created_at AS "createdAt", updated_at AS "updatedAt"`)

const oneOr = <E>(missing: () => E) =>
  Effect.flatMap(([project]: ReadonlyArray<Project>) =>
    project === undefined ? Effect.fail(missing()) : Effect.succeed(project),
  )

/** A project to insert, into the default org when `orgId` is `null`. */
interface WantedProject extends Pick<NewProject, "name" | "now"> {
  readonly id: string
  readonly orgId: string | null
  /** Whether the org certainly has room. */
  readonly room: boolean
}

/** Inserts projects within the limit of their org. Creates the default org when it is needed. */
const makeInsert = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const limit = yield* Limited.make("projects")
  const insertInBatch = yield* auditedTogether<WantedProject, typeof Row.Encoded & { readonly id: string }>(
    sql,
    `id text, name text, "orgId" text, now timestamptz, room boolean`,
    sql`
      INSERT INTO projects (id, org_id, name, created_at, updated_at)
      SELECT asked.id, org.id, asked.name, now, now FROM asked CROSS JOIN LATERAL (
        SELECT id, limits FROM orgs WHERE id = coalesce("orgId", (SELECT id FROM orgs WHERE is_default)) OFFSET 0
      ) AS org
      WHERE ${limit.guard(sql`asked.room`)}
      RETURNING id, ${columns(sql)}`,
  )

  return ({ projectId, name, orgId, defaultOrgId, now }: NewProject, entry: AuditEntry) => {
    const insertInto = (org: string | null) => {
      const owner = {
        key: org ?? "the default org",
        from: () => sql`orgs org WHERE id = coalesce(${org}, (SELECT id FROM orgs WHERE is_default))`,
      }
      return limit.admit(owner, (hasRoom) =>
        insertInBatch({ id: projectId, name, orgId: org, now, room: hasRoom }, entry),
      )
    }
    const createDefaultOrg = defaultOrg(sql, defaultOrgId, date(now))
    const insertIntoDefault = Effect.flatMap(insertInto(null), (project) =>
      project === undefined
        ? createDefaultOrg.pipe(Effect.flatMap(insertInto), sql.withTransaction, orUnavailable)
        : Effect.succeed(project),
    )
    return (orgId === undefined ? insertIntoDefault : insertInto(orgId)).pipe(
      Effect.map((project) => (project === undefined ? [] : [project])),
      decode,
      oneOr(orgNotFound),
    )
  }
})

/** The assignments of an UPDATE for a request's changes. */
const assignments = (
  sql: SqlClient.SqlClient,
  { name, defaultBranch, subdomain, hostOwner, hostRepo }: ProjectChanges,
  link: RepositoryName | undefined,
  now: DateTime.Utc,
) => {
  const sets = [sql`updated_at = ${date(now)}`]
  if (name !== undefined) sets.push(sql`name = ${name}`)
  if (defaultBranch !== undefined) sets.push(sql`default_branch = ${defaultBranch}`)
  if (subdomain !== undefined) sets.push(sql`subdomain = ${subdomain}`)
  // A link to the same repository keeps the id that its runs have proved. Another repository must prove its own id.
  if (link !== undefined) {
    sets.push(sql`repository_id = CASE WHEN ${isLinkedByName(sql, link)} THEN repository_id END`)
  } else if (hostOwner === null) sets.push(sql`repository_id = NULL`)
  if (hostOwner !== undefined) sets.push(sql`host_owner = ${hostOwner}`, sql`host_repo = ${hostRepo}`)
  return sets
}

/** Runs an update that links a project; fails with `Conflict` when another project is linked to the repository. */
const linkOnce = <E, R>(
  sql: SqlClient.SqlClient,
  projectId: string,
  repository: RepositoryName,
  update: Effect.Effect<ReadonlyArray<Project>, E, R>,
) =>
  Effect.gen(function* () {
    yield* lockRepositoryName(sql, repository)
    const projects = yield* update
    // Checked first: a project out of scope is not found, whatever the repository.
    if (projects.length === 0) return projects
    const others = yield* sql`SELECT id FROM projects WHERE ${isLinkedByName(sql, repository)} AND id <> ${projectId}`
    if (others.length === 0) return projects
    return yield* new Conflict({ error: "hostOwner, hostRepo: Another project is linked to this repository." })
  }).pipe(sql.withTransaction)

/** Changes a project; fails with `Conflict` when another project has its subdomain or its repository. */
const updateProject = (
  sql: SqlClient.SqlClient,
  scope: OrgScope,
  projectId: string,
  changes: ProjectChanges,
  now: DateTime.Utc,
  entry: AuditEntry,
) => {
  const { hostOwner, hostRepo } = changes
  const link = hostOwner != null && hostRepo != null ? { owner: hostOwner, repo: hostRepo } : undefined
  const update = audited(
    sql,
    entry,
    sql`
      UPDATE projects SET ${sql.csv(assignments(sql, changes, link, now))}
      WHERE id = ${projectId} AND ${inScope(sql, scope)}
      RETURNING ${columns(sql)}`,
  ).pipe(decode)
  return (link === undefined ? update : linkOnce(sql, projectId, link, update)).pipe(
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
}

/** Projects in PostgreSQL. */
export const layer = Layer.effect(
  ProjectRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return ProjectRepository.of({
      insert: yield* makeInsert,

      find: (scope, projectId) =>
        sql`SELECT ${columns(sql)} FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)}`.pipe(
          decode,
          orUnavailable,
          oneOr(projectNotFound),
        ),

      list: (scope, page) =>
        pageOf(
          sql,
          page,
          sql`SELECT ${columns(sql)} FROM projects WHERE ${inScope(sql, scope)} AND ${afterCursor(sql, page)}`,
          "projectId",
          ["name", "subdomain", "defaultBranch", "hostOwner", "hostRepo"],
        ).pipe(decodeList, orUnavailable),

      update: (scope, projectId, changes, now, entry) => updateProject(sql, scope, projectId, changes, now, entry),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
