import { Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import type { CiRun } from "../../domain/deployments/Deployment.ts"
import { Deployment, subdomainFor } from "../../domain/deployments/Deployment.ts"
import type { NewDeployment, Registered } from "../../domain/deployments/Deployments.ts"
import { DeploymentRepository } from "../../domain/deployments/Deployments.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { afterCursor, date, decodePage, inScope, pageOf, Time } from "../database/fragments.ts"
import * as Limited from "../orgs/limited.ts"
import { defaultOrg, isLinkedByName, lockRepositoryId, lockRepositoryName } from "../projects/links.ts"

const Row = Schema.Struct({ ...Deployment.fields, createdAt: Time })
const decode = decodePage(Row)

interface Linked {
  readonly id: string
  readonly repositoryId: string | null
}

/**
 * Records a run in the project of the condition, unless it was recorded before, and updates the project's link, in one
 * statement. Locks the project's row, so that the change of a person at the same time is not overwritten. Returns the
 * project's id, or no row when there is no such project.
 */
const recordRun = (
  sql: SqlClient.SqlClient,
  { run, deploymentId, now }: NewDeployment,
  project: Statement.Fragment,
) => sql<{ id: string }>`
  WITH project AS (
    SELECT id, org_id FROM projects WHERE ${project} FOR NO KEY UPDATE
  ), recorded AS (
    INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, pull_request, run_id,
      run_attempt, workflow, actor, event_name, environment, created_at)
    SELECT ${deploymentId}, org_id, id, 'github', ${run.branch}, ${run.ref}, ${run.sha}, ${run.preview},
      ${run.pullRequest}::int, ${run.runId}, ${run.runAttempt}, ${run.workflow}, ${run.actor}, ${run.eventName},
      ${run.environment}, ${date(now)}
    FROM project
    ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING
    RETURNING id, project_id, org_id, branch, preview
  ), linked AS (
    UPDATE projects SET repository_id = ${run.repositoryId}, host_owner = ${run.owner}, host_repo = ${run.repo},
      default_branch = coalesce(default_branch, ${run.defaultBranchCandidate}), updated_at = ${date(now)},
      current_deployment_id = CASE
        WHEN NOT preview AND branch = coalesce(default_branch, ${run.defaultBranchCandidate}) THEN recorded.id
        ELSE current_deployment_id END
    FROM recorded WHERE projects.id = recorded.project_id AND projects.org_id = recorded.org_id
  )
  SELECT id FROM project`

const linkedColumns = (sql: SqlClient.SqlClient) => sql.literal(`id, repository_id AS "repositoryId"`)

/** Finds the project that is linked to a repository: by the repository's id, or by its name while no run has proved an id. */
const findLinked = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, run: CiRun) {
  const [byId] = yield* sql<Linked>`
    SELECT ${linkedColumns(sql)} FROM projects WHERE repository_id = ${run.repositoryId} FOR NO KEY UPDATE`
  if (byId !== undefined) return byId
  const byName =
    yield* sql<Linked>`SELECT ${linkedColumns(sql)} FROM projects WHERE ${isLinkedByName(sql, run)} FOR NO KEY UPDATE`
  return byName.find((project) => project.repositoryId === null) ?? byName[0]
})

/** Creates a project for a repository, with the first free subdomain of its name. */
const createProject = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  { run, projectId, defaultOrgId, now }: NewDeployment,
) {
  const at = date(now)
  const orgId = yield* defaultOrg(sql, defaultOrgId, at)
  yield* limit.take(Limited.orgOwner(sql, orgId))
  for (let n = 1; ; n++) {
    const [created] = yield* sql<Linked>`
      INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
      VALUES (${projectId}, ${orgId}, ${run.repo}, ${subdomainFor(run.owner, run.repo, n)}, ${at}, ${at})
      ON CONFLICT (subdomain) DO NOTHING
      RETURNING ${linkedColumns(sql)}`
    if (created !== undefined) return created
  }
})

/** Links a project to the repository of a run, creates one if the run may, and records the run, under locks. */
const linkAndRecord = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  limit: Limited.Limited,
  deployment: NewDeployment,
) {
  const { run } = deployment
  yield* lockRepositoryId(sql, run.repositoryId)
  yield* lockRepositoryName(sql, run)
  const found = yield* findLinked(sql, run)
  if (found === undefined && !deployment.createProject) return { _tag: "NotLinked" } satisfies Registered
  if (found !== undefined && found.repositoryId !== null && found.repositoryId !== run.repositoryId) {
    return { _tag: "NameReused" } satisfies Registered
  }
  const { id } = found ?? (yield* createProject(sql, limit, deployment))
  yield* recordRun(sql, deployment, sql`id = ${id}`)
  return { _tag: "Registered", projectId: id } satisfies Registered
})

/** Deployments in PostgreSQL. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const limit = yield* Limited.make("projects")
    const columns = sql.literal(`
      id, project_id AS "projectId", org_id AS "orgId", provider, branch, ref, sha, preview,
      pull_request AS "pullRequest", run_id AS "runId", run_attempt AS "runAttempt", workflow, actor,
      event_name AS "eventName", environment, created_at AS "createdAt"`)

    return DeploymentRepository.of({
      register: (deployment) => {
        const { run } = deployment
        // Nearly every run is of a repository whose id and name are linked: no link changes, so the lock of the project's row
        // is enough.
        const isLinked = sql`repository_id = ${run.repositoryId} AND ${isLinkedByName(sql, run)}`
        return recordRun(sql, deployment, isLinked).pipe(
          Effect.flatMap(([project]) =>
            project === undefined
              ? sql.withTransaction(linkAndRecord(sql, limit, deployment))
              : Effect.succeed<Registered>({ _tag: "Registered", projectId: project.id }),
          ),
          orUnavailable,
        )
      },

      list: (scope, projectId, page) =>
        pageOf(
          sql,
          page,
          sql`
            -- The scope of the project first, so that no row of another org's project is read. The scope of the rows last:
            -- with both conditions together the planner sorts all deployments of the project.
            SELECT ${columns} FROM (
              SELECT * FROM deployments
              WHERE project_id = (SELECT id FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)})
                AND ${afterCursor(sql, page, "newest")}
              ORDER BY id DESC LIMIT ${page.limit + 1}
            ) AS newest
            WHERE ${inScope(sql, scope)}`,
          "id",
          ["branch", "ref", "sha", "workflow", "actor", "eventName", "environment"],
          "newest",
        ).pipe(decode, orUnavailable),
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))
