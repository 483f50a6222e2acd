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
import { defaultOrg, hasName, lockRepositoryId, lockRepositoryName } from "../projects/links.ts"

const Row = Schema.Struct({ ...Deployment.fields, createdAt: Time })
const decode = decodePage(Row)

interface Linked {
  readonly id: string
  readonly repositoryId: string | null
}

/** Deployments in PostgreSQL. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const limit = yield* Limited.make("projects")
    const linked = sql.literal(`id, repository_id AS "repositoryId"`)
    const columns = sql.literal(`
      id, project_id AS "projectId", org_id AS "orgId", provider, branch, ref, sha, preview,
      pull_request AS "pullRequest", run_id AS "runId", run_attempt AS "runAttempt", workflow, actor,
      event_name AS "eventName", environment, created_at AS "createdAt"`)

    /**
     * Records the run for the project of the condition, unless it was recorded before, and keeps that project's link up to
     * date: one statement. The project's row is locked, so that a change by hand at the same time is not written over.
     * Gives the project's id; none when there is no such project.
     */
    const record = ({ run, deploymentId, now }: NewDeployment, project: Statement.Fragment) => sql<{ id: string }>`
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

    /** The project linked to the repository: by its id, else by its name as long as no run has proved an id. */
    const findLinked = Effect.fnUntraced(function* (run: CiRun) {
      const [byId] = yield* sql<Linked>`
        SELECT ${linked} FROM projects WHERE repository_id = ${run.repositoryId} FOR NO KEY UPDATE`
      if (byId !== undefined) return byId
      const byName = yield* sql<Linked>`SELECT ${linked} FROM projects WHERE ${hasName(sql, run)} FOR NO KEY UPDATE`
      return byName.find((project) => project.repositoryId === null) ?? byName[0]
    })

    /** Makes the repository's project under the first subdomain of its name that is free. */
    const createProject = Effect.fnUntraced(function* ({ run, projectId, defaultOrgId, now }: NewDeployment) {
      const at = date(now)
      const orgId = yield* defaultOrg(sql, defaultOrgId, at)
      yield* limit.take({ key: orgId, from: () => sql`orgs org WHERE id = ${orgId}` })
      for (let n = 1; ; n++) {
        const [made] = yield* sql<Linked>`
          INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
          VALUES (${projectId}, ${orgId}, ${run.repo}, ${subdomainFor(run.owner, run.repo, n)}, ${at}, ${at})
          ON CONFLICT (subdomain) DO NOTHING
          RETURNING ${linked}`
        if (made !== undefined) return made
      }
    })

    /** Links a project to the repository, or makes one, while nobody else does so, and records the run. */
    const link = Effect.fnUntraced(function* (deployment: NewDeployment) {
      const { run } = deployment
      yield* lockRepositoryId(sql, run.repositoryId)
      yield* lockRepositoryName(sql, run)
      const found = yield* findLinked(run)
      if (found === undefined && !deployment.createProject) return { _tag: "NotLinked" } satisfies Registered
      if (found !== undefined && found.repositoryId !== null && found.repositoryId !== run.repositoryId) {
        return { _tag: "NameReused" } satisfies Registered
      }
      const { id } = found ?? (yield* createProject(deployment))
      yield* record(deployment, sql`id = ${id}`)
      return { _tag: "Registered", projectId: id } satisfies Registered
    }, sql.withTransaction)

    return DeploymentRepository.of({
      register: (deployment) => {
        const { run } = deployment
        // Nearly every run is of a repository that is linked under its id and name: no link changes hands, so the lock
        // on the project's row is enough.
        return record(deployment, sql`repository_id = ${run.repositoryId} AND ${hasName(sql, run)}`).pipe(
          Effect.flatMap(([project]) =>
            project === undefined
              ? link(deployment)
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
            -- The project's scope first: of another's not one row is read. The rows' own scope last, for estimates that count
            -- both conditions make a plan that sorts all of the project.
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
