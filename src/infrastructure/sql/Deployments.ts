import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import type { CiRun } from "../../domain/Deployment.ts"
import { Deployment, subdomainFor } from "../../domain/Deployment.ts"
import type { NewDeployment, Registered } from "../../domain/Deployments.ts"
import { DeploymentRepository } from "../../domain/Deployments.ts"
import { orUnavailable } from "../orUnavailable.ts"
import { afterCursor, decodeRows, inScope } from "./fragments.ts"
import { defaultOrg, lockRepositoryId, lockRepositoryName } from "./links.ts"

const Row = Schema.Struct({ ...Deployment.fields, createdAt: Schema.DateTimeUtcFromDate })
const decode = decodeRows(Row)

interface Linked {
  readonly id: string
  readonly orgId: string
  readonly repositoryId: string | null
  readonly defaultBranch: string | null
}

/** Deployments in PostgreSQL. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const linked = sql.literal(
      `id, org_id AS "orgId", repository_id AS "repositoryId", default_branch AS "defaultBranch"`,
    )
    const columns = sql.literal(`
      id, project_id AS "projectId", org_id AS "orgId", provider, branch, ref, sha, preview,
      pull_request AS "pullRequest", run_id AS "runId", run_attempt AS "runAttempt", workflow, actor,
      event_name AS "eventName", environment, created_at AS "createdAt"`)

    /**
     * The project linked to the repository: by its id, else by its name as long as no run has proved an id. Its row is
     * locked, so that a change by hand at the same time is not written over.
     */
    const findLinked = Effect.fnUntraced(function* (run: CiRun) {
      const [byId] = yield* sql<Linked>`
        SELECT ${linked} FROM projects WHERE repository_id = ${run.repositoryId} FOR NO KEY UPDATE`
      if (byId !== undefined) return byId
      const byName = yield* sql<Linked>`
        SELECT ${linked} FROM projects
        WHERE lower(host_owner) = lower(${run.owner}) AND lower(host_repo) = lower(${run.repo})
        FOR NO KEY UPDATE`
      return byName.find((project) => project.repositoryId === null) ?? byName[0]
    })

    /** Makes the repository's project under the first subdomain of its name that is free. */
    const createProject = Effect.fnUntraced(function* ({ run, projectId, defaultOrgId, now }: NewDeployment) {
      const at = DateTime.toDateUtc(now)
      const orgId = yield* defaultOrg(sql, defaultOrgId, at)
      for (let n = 1; ; n++) {
        const [made] = yield* sql<Linked>`
          INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
          VALUES (${projectId}, ${orgId}, ${run.repo}, ${subdomainFor(run.owner, run.repo, n)}, ${at}, ${at})
          ON CONFLICT (subdomain) DO NOTHING
          RETURNING ${linked}`
        if (made !== undefined) return made
      }
    })

    const record = ({ run, deploymentId, now }: NewDeployment, project: Linked) => sql`
      INSERT INTO deployments (id, org_id, project_id, provider, branch, ref, sha, preview, pull_request, run_id,
        run_attempt, workflow, actor, event_name, environment, created_at)
      VALUES (${deploymentId}, ${project.orgId}, ${project.id}, 'github', ${run.branch}, ${run.ref}, ${run.sha},
        ${run.preview}, ${run.pullRequest}, ${run.runId}, ${run.runAttempt}, ${run.workflow}, ${run.actor},
        ${run.eventName}, ${run.environment}, ${DateTime.toDateUtc(now)})
      ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING
      RETURNING id`

    return DeploymentRepository.of({
      register: (deployment) =>
        Effect.gen(function* () {
          const { run, now } = deployment
          yield* lockRepositoryId(sql, run.repositoryId)
          yield* lockRepositoryName(sql, run.owner, run.repo)
          const found = yield* findLinked(run)
          if (found === undefined && !deployment.createProject) return { _tag: "NotLinked" } satisfies Registered
          if (found !== undefined && found.repositoryId !== null && found.repositoryId !== run.repositoryId) {
            return { _tag: "NameReused" } satisfies Registered
          }
          const project = found ?? (yield* createProject(deployment))
          const isNew = (yield* record(deployment, project)).length > 0
          const defaultBranch = project.defaultBranch ?? run.defaultBranchCandidate
          const isCurrent = isNew && !run.preview && run.branch === defaultBranch
          if (isNew) {
            yield* sql`
              UPDATE projects SET repository_id = ${run.repositoryId}, host_owner = ${run.owner}, host_repo = ${run.repo},
                default_branch = ${defaultBranch}, updated_at = ${DateTime.toDateUtc(now)}
                ${isCurrent ? sql`, current_deployment_id = ${deployment.deploymentId}` : sql.literal("")}
              WHERE id = ${project.id} AND org_id = ${project.orgId}`
          }
          return { _tag: "Registered", projectId: project.id } satisfies Registered
        }).pipe(sql.withTransaction, orUnavailable),

      list: (scope, projectId, page) =>
        sql`
          SELECT ${columns} FROM deployments
          WHERE project_id = ${projectId} AND ${inScope(sql, scope)} AND ${afterCursor(sql, page, "newest")}
          ORDER BY id DESC LIMIT ${page.limit + 1}`.pipe(decode, orUnavailable),
    })
  }),
)
