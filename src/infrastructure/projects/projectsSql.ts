import { type DateTime, Effect, Layer, Schema, SchemaGetter } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { Conflict } from "../../domain/Errors.ts"
import { orgNotFound, type OrgScope } from "../../domain/Principal.ts"
import type { AuditEntry } from "../../domain/audit/AuditEntry.ts"
import { newRowBytes } from "../../domain/orgs/StoredBytes.ts"
import { Project } from "../../domain/projects/Project.ts"
import { linkNotFound, type NewProject, projectNotFound, ProjectRepository } from "../../domain/projects/Projects.ts"
import type { RepositoryLink } from "../../domain/projects/RepositoryLink.ts"
import { audited, auditedTogether } from "../audit/audited.ts"
import { afterCursor, assignments, date, decodePage, decodeRows, inScope, pageOf, Time } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { ownerDeleted, revocationChannel } from "../revocations.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import {
  defaultOrg,
  linkAssignments,
  linkOrConflict,
  linkProvider,
  orgExists,
  projectCondition,
  unlinkAssignments,
} from "./repositoryLinks.ts"

type ProjectChanges = Parameters<ProjectRepository["Service"]["update"]>[2]

const oneOr = <E>(missing: () => E) =>
  Effect.flatMap(([project]: ReadonlyArray<Project>) =>
    project === undefined ? Effect.fail(missing()) : Effect.succeed(project),
  )

/** A project to insert, into the default org when `orgId` is `null`. */
interface WantedProject extends Pick<NewProject, "name" | "now"> {
  readonly id: string
  readonly orgId: string | null
  readonly rows: number
  readonly bytes: number
}

/** Inserts projects within the limit of their org. Creates the default org when there is none. */
const makeInsert = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const limit = yield* Limits.make("projects")
  const insertInBatch = yield* auditedTogether<WantedProject, typeof ProjectRow.Encoded & { readonly id: string }>(
    sql,
    `id text, name text, "orgId" text, now timestamptz, rows bigint, bytes bigint`,
    sql`
      INSERT INTO projects (id, org_id, name, created_at, updated_at)
      SELECT asked.id, org.id, asked.name, now, now FROM asked CROSS JOIN LATERAL (
        SELECT id, limits FROM orgs WHERE id = coalesce("orgId", (SELECT id FROM orgs WHERE is_default)) LIMIT 1
      ) AS org
      WHERE ${limit.fits({ rows: sql`asked.rows`, bytes: sql`asked.bytes` })}
      RETURNING id, ${projectColumns(sql)}`,
  )

  return ({ projectId, name, orgId, newOrgId, now }: NewProject, entry: AuditEntry) => {
    const insertInto = (org: string | null) => {
      const owner = {
        key: org ?? "the default org",
        from: () => sql`orgs org WHERE id = coalesce(${org}, (SELECT id FROM orgs WHERE is_default))`,
      }
      return limit.admit(owner, { bytes: newRowBytes(name) }, (beside) =>
        insertInBatch({ id: projectId, name, orgId: org, now, ...beside }, entry),
      )
    }
    const ensureOrg = defaultOrg(sql, newOrgId, date(now))
    const insertIntoDefault = Effect.flatMap(insertInto(null), (project) =>
      project === undefined
        ? ensureOrg.pipe(Effect.flatMap(insertInto), sql.withTransaction, orUnavailable)
        : Effect.succeed(project),
    )
    return (orgId === undefined ? insertIntoDefault : insertInto(orgId)).pipe(
      Effect.map((project) => (project === undefined ? [] : [project])),
      decodeProjects,
      oneOr(orgNotFound),
    )
  }
})

const linkColumns = `
  ${linkProvider} AS provider, host_owner AS "hostOwner", host_repo AS "hostRepo", pin_workflow AS workflow,
  pin_environment AS environment`

/** Projects in PostgreSQL. */
export const layer = Layer.effect(
  ProjectRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const bytes = yield* ByteLimit.make

    /** The assignments of an UPDATE for a request's changes. */
    const changesOf = (
      { name, defaultBranch, subdomain, hostOwner, hostRepo, keyPrefix }: ProjectChanges,
      now: DateTime.Utc,
    ) => {
      const columns = { updated_at: date(now), name, default_branch: defaultBranch, key_prefix: keyPrefix, subdomain }
      const sets = assignments(sql, columns)
      if (hostOwner != null && hostRepo != null) {
        sets.push(...linkAssignments(sql, { provider: "github", owner: hostOwner, repo: hostRepo }))
      } else if (hostOwner === null) sets.push(...unlinkAssignments(sql))
      return sets
    }

    const findLink = Effect.fnUntraced(function* (scope: OrgScope, projectId: string) {
      const [link] = yield* sql<{ [Field in keyof RepositoryLink]: RepositoryLink[Field] | null }>`
        SELECT ${sql.literal(linkColumns)} FROM projects WHERE ${projectCondition(sql, scope, projectId)}`
      if (link === undefined) return yield* projectNotFound()
      if (link.hostOwner === null) return yield* linkNotFound()
      return link as RepositoryLink
    })

    return ProjectRepository.of({
      insert: yield* makeInsert,

      find: (scope, projectId) =>
        sql`SELECT ${projectColumns(sql)} FROM projects WHERE ${projectCondition(sql, scope, projectId)}`.pipe(
          decodeProjects,
          orUnavailable,
          oneOr(projectNotFound),
        ),

      list: (scope, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT ${projectColumns(sql)} FROM projects
            WHERE ${inScope(sql, scope)} AND ${afterCursor(sql, page)} AND ${sql.literal(orgExists())}`,
          "projectId",
          ["name", "subdomain", "defaultBranch", "hostOwner", "hostRepo"],
        ).pipe(decodeProjectPage, orUnavailable),

      update: (scope, projectId, changes, now, entry) => {
        const { hostOwner, hostRepo } = changes
        const link =
          hostOwner != null && hostRepo != null ? { provider: "github", owner: hostOwner, repo: hostRepo } : undefined
        const update = audited(
          sql,
          entry,
          sql`
            UPDATE projects SET ${sql.csv(changesOf(changes, now))}
            WHERE ${projectCondition(sql, scope, projectId)}
            RETURNING ${projectColumns(sql)}`,
        ).pipe(decodeProjects)
        const changed = bytes.changing("project", projectCondition(sql, scope, projectId), update)
        return (link === undefined ? changed : linkOrConflict(sql, projectId, link, changed)).pipe(
          Effect.catchIf(
            (error) =>
              SqlError.isSqlError(error) &&
              error.reason._tag === "UniqueViolation" &&
              error.reason.constraint === "projects_subdomain",
            () =>
              Effect.fail(
                new Conflict({ error: "subdomain: another project has this subdomain. Choose another one." }),
              ),
          ),
          orUnavailable,
          oneOr(projectNotFound),
        )
      },

      remove: (scope, projectId, now, entry) =>
        Effect.gen(function* () {
          const [project] = yield* audited(
            sql,
            entry,
            sql`DELETE FROM projects WHERE ${projectCondition(sql, scope, projectId)} RETURNING org_id AS "orgId"`,
          )
          if (project === undefined) return yield* projectNotFound()
          const { orgId } = project
          yield* sql`SELECT pg_notify(${revocationChannel}, ${ownerDeleted(orgId, projectId)})`
          // The sweep has the id of the entry, which is a new one.
          yield* sql`
            INSERT INTO sweeps (id, org_id, project_id, kind, created_at)
            VALUES (${entry.id}, ${orgId}, ${projectId}, 'erase', ${date(now)})`
          return orgId
        }).pipe(sql.withTransaction, orUnavailable),

      findLink: (scope, projectId) => findLink(scope, projectId).pipe(orUnavailable),
      putLink: Effect.fnUntraced(function* (
        scope,
        projectId,
        { provider, hostOwner, hostRepo, workflow, environment },
        now,
        entry,
      ) {
        const repository = { provider, owner: hostOwner, repo: hostRepo }
        const pins = [sql`pin_workflow = ${workflow}`, sql`pin_environment = ${environment}`]
        const update = audited(
          sql,
          entry,
          sql`
            UPDATE projects SET ${sql.csv([...linkAssignments(sql, repository), ...pins])}, updated_at = ${date(now)}
            WHERE ${projectCondition(sql, scope, projectId)}
            RETURNING org_id AS "orgId"`,
        )
        const sized = bytes.changing("project", projectCondition(sql, scope, projectId), update)
        const changed = yield* linkOrConflict(sql, projectId, repository, sized)
        if (changed.length === 0) return yield* projectNotFound()
        return { provider, hostOwner, hostRepo, workflow, environment }
      }, orUnavailable),
      removeLink: Effect.fnUntraced(function* (scope, projectId, now, entry) {
        const changed = yield* audited(
          sql,
          entry,
          sql`
            UPDATE projects SET ${sql.csv(unlinkAssignments(sql))}, updated_at = ${date(now)}
            WHERE ${projectCondition(sql, scope, projectId)} AND host_owner IS NOT NULL
            RETURNING org_id AS "orgId"`,
        )
        if (changed.length > 0) return
        yield* findLink(scope, projectId)
      }, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

const Row = Schema.Struct({
  ...Project.fields,
  keyPrefix: Schema.NullOr(Schema.String),
  createdAt: Time,
  updatedAt: Time,
})
const ProjectRow = Row.pipe(
  Schema.decodeTo(Schema.toType(Project), {
    decode: SchemaGetter.transform(({ keyPrefix, ...row }) => (keyPrefix === null ? row : { ...row, keyPrefix })),
    encode: SchemaGetter.transform(({ keyPrefix = null, ...row }) => ({ ...row, keyPrefix })),
  }),
)
export const decodeProjects = decodeRows(ProjectRow)
const decodeProjectPage = decodePage(ProjectRow)

/** The columns of a project, with its org as "orgId". */
export const projectColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    id AS "projectId", org_id AS "orgId", name, subdomain, current_deployment_id AS "currentDeploymentId",
    default_branch AS "defaultBranch", host_owner AS "hostOwner", host_repo AS "hostRepo", key_prefix AS "keyPrefix",
    created_at AS "createdAt", updated_at AS "updatedAt"`)
