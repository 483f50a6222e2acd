import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import {
  admitRun,
  effectsOf,
  isNamed,
  type LinkedProject,
  type OwningOrg,
  type RunEffects,
} from "../../domain/deployments/admission.ts"
import type { CiRun } from "../../domain/deployments/CiRun.ts"
import { subdomainFor } from "../../domain/deployments/Deployment.ts"
import type { NewDeployment, Registered } from "../../domain/deployments/DeploymentRepository.ts"
import { newestOf } from "../../domain/deployments/runOrder.ts"
import { date, dateOrNull } from "../database/fragments.ts"
import { announce, announcing } from "../webhooks/announce.ts"
import * as Limited from "../orgs/limited.ts"
import { defaultOrg, orgExists, isLinkedByName, lockRepositoryId, lockRepositoryName } from "../projects/links.ts"

type Sql = SqlClient.SqlClient

/** The position of a run in columns of a row; null without a run. */
interface PositionColumns {
  readonly runId: string | null
  readonly runAttempt: number
  readonly at: Date
}

const toPosition = ({ at, runAttempt, runId }: PositionColumns) =>
  runId === null ? null : { runId, runAttempt, at: DateTime.fromDateUnsafe(new Date(at)) }

interface LinkedRow extends Omit<LinkedProject, "pins" | "newest"> {
  readonly workflow: string | null
  readonly environment: string | null
  readonly newest: PositionColumns
  readonly current: PositionColumns
}

const toLinked = ({ current, environment, newest, workflow, ...row }: LinkedRow): LinkedProject => ({
  ...row,
  pins: { workflow, environment },
  // A replica of the version before stores only the current deployment.
  newest: newestOf([toPosition(newest), toPosition(current)]),
})

/** Finds and locks projects of existing orgs, with what `admitRun` and `effectsOf` need. */
export const findLinkedProjects = (sql: Sql, condition: Statement.Fragment) =>
  Effect.map(
    sql<LinkedRow>`
      SELECT p.id, p.org_id AS "orgId", coalesce(p.host_owner, '') AS "hostOwner", coalesce(p.host_repo, '') AS "hostRepo",
        p.repository_id AS "repositoryId", p.issuer, p.repository_owner_id AS "ownerId",
        p.default_branch AS "defaultBranch", p.pin_workflow AS workflow, p.pin_environment AS environment,
        json_build_object('runId', p.newest_run_id, 'runAttempt', p.newest_run_attempt, 'at', p.newest_run_at) AS newest,
        json_build_object('runId', d.run_id, 'runAttempt', d.run_attempt, 'at', coalesce(d.issued_at, d.created_at)) AS current
      FROM projects p LEFT JOIN deployments d ON d.id = p.current_deployment_id AND d.project_id = p.id
      WHERE ${condition} AND ${sql.literal(orgExists("p"))} FOR NO KEY UPDATE OF p`,
    (rows) => rows.map(toLinked),
  )

/** The condition of the project that has the id of a run's repository. */
const hasId = (sql: Sql, { rules, run }: NewDeployment) => {
  // Ids from before issuers were stored are GitHub's.
  const isOldId = run.provider === "github" && isNamed(rules, run)
  return sql`p.repository_id = ${run.repositoryId} AND (p.issuer = ${run.issuer} OR (p.issuer IS NULL AND ${isOldId}))`
}

/** Finds the project of a repository: by its id, or by its name while no run has proved an id. */
const findLinked = Effect.fnUntraced(function* (sql: Sql, deployment: NewDeployment) {
  const { rules, run } = deployment
  const [byId] = yield* findLinkedProjects(sql, hasId(sql, deployment))
  if (byId !== undefined || !isNamed(rules, run)) return byId
  const byName = yield* findLinkedProjects(
    sql,
    sql`${isLinkedByName(sql, run)} AND (p.issuer IS NULL OR p.issuer = ${run.issuer})`,
  )
  return byName.find((project) => project.repositoryId === null) ?? byName[0]
})

/** The org that has the owner of a run. */
const findOwningOrg = (sql: Sql, { rules, run }: NewDeployment) =>
  isNamed(rules, run)
    ? Effect.map(
        sql<OwningOrg>`
          SELECT org_id AS "orgId", owner_id AS "ownerId" FROM org_owners
          WHERE provider = ${run.provider} AND owner_key = lower(${run.owner}) AND ${sql.literal(orgExists("org_owners"))}`,
        ([org]) => org,
      )
    : Effect.succeed(undefined)

/** Projects of an owner that are read for the ids that were proved for its name. */
const maxProjectsOfOwner = 1_000

const findOwnerIds = (sql: Sql, { provider, owner, issuer }: CiRun) =>
  Effect.map(
    sql<{ id: string }>`
      SELECT DISTINCT repository_owner_id AS id FROM (
        SELECT repository_owner_id FROM projects
        WHERE lower(host_owner) = lower(${owner}) AND coalesce(host_provider, 'github') = ${provider}
          AND issuer = ${issuer} AND repository_owner_id IS NOT NULL
        LIMIT ${sql.literal(`${maxProjectsOfOwner}`)}
      ) AS proved`,
    (rows) => rows.map(({ id }) => id),
  )

/** Records a run in a locked project, unless it was recorded before, and updates the project, in one statement. */
const recordRun = (
  sql: Sql,
  { run, deploymentId, projectId, now, event }: NewDeployment,
  { id, orgId }: Pick<LinkedProject, "id" | "orgId">,
  { preview, defaultBranch, becomesCurrent, newest }: RunEffects,
) => {
  const write = (told: typeof event) => sql<{ id: string }>`
  WITH recorded AS (
    INSERT INTO deployments (id, org_id, project_id, provider, issuer, repository_id, issued_at, branch, ref, sha, preview,
      pull_request, run_id, run_attempt, workflow, actor, event_name, environment, created_at)
    VALUES (${deploymentId}, ${orgId}, ${id}, ${run.provider}, ${run.issuer}, ${run.repositoryId},
      ${dateOrNull(run.issuedAt)}::timestamptz, ${run.branch}, ${run.ref}, ${run.sha}, ${preview}, ${run.pullRequest}::int,
      ${run.runId}, ${run.runAttempt}, ${run.workflow}, ${run.actor}, ${run.eventName}, ${run.environment}, ${date(now)})
    ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING
    RETURNING id, project_id, org_id
  )${announce(
    sql,
    told,
    sql`(SELECT org_id AS "orgId", project_id FROM recorded)`,
    (body) => sql`replace(${body}, ${projectId}, project_id)`,
  )}
  UPDATE projects SET repository_id = ${run.repositoryId}, issuer = ${run.issuer}, host_provider = ${run.provider},
    host_owner = ${run.owner}, host_repo = ${run.repo}, repository_owner_id = ${run.ownerId},
    default_branch = ${defaultBranch}, updated_at = ${date(now)}, newest_run_id = ${newest?.runId ?? null},
    newest_run_attempt = ${newest?.runAttempt ?? null}::int, newest_run_at = ${dateOrNull(newest?.at ?? null)}::timestamptz,
    current_deployment_id = CASE WHEN ${becomesCurrent} THEN recorded.id ELSE current_deployment_id END
  FROM recorded WHERE projects.id = recorded.project_id AND projects.org_id = recorded.org_id
  RETURNING recorded.id`
  if (event === undefined) return write(event)
  const body = event.body.replaceAll(projectId, id)
  return announcing(sql, write, event, (rows) => rows.map(() => ({ event: { ...event, body }, orgId })))
}

/** Creates a project for a repository, with the first free subdomain of its name. */
const createProject = Effect.fnUntraced(function* (
  sql: Sql,
  limit: Limited.Limited,
  { run, projectId, defaultOrgId, now }: NewDeployment,
  owningOrg: string | null,
) {
  const at = date(now)
  const orgId = owningOrg ?? (yield* defaultOrg(sql, defaultOrgId, at))
  yield* limit.take(Limited.orgOwner(sql, orgId))
  for (let n = 1; ; n++) {
    const [created] = yield* sql`
      INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
      VALUES (${projectId}, ${orgId}, ${run.repo}, ${subdomainFor(run.owner, run.repo, n)}, ${at}, ${at})
      ON CONFLICT (subdomain) DO NOTHING
      RETURNING id`
    if (created !== undefined) return { id: projectId, orgId }
  }
})

/** Frees the links of a repository from projects of deleted orgs, which have rows until a sweep has removed them. */
const freeLinks = (sql: Sql, run: CiRun) => sql`
  UPDATE projects SET repository_id = NULL, issuer = NULL, host_owner = NULL, host_repo = NULL
  WHERE (repository_id = ${run.repositoryId} OR (${isLinkedByName(sql, run)})) AND NOT ${sql.literal(orgExists())}`

/** Keeps the owner's id with the `owners` of an org, when the first run of the owner proves it. */
const proveOwner = (sql: Sql, { run, rules }: NewDeployment, owningOrg: OwningOrg | undefined) =>
  owningOrg === undefined || owningOrg.ownerId !== null || run.ownerId === null || !isNamed(rules, run)
    ? Effect.void
    : sql`
        UPDATE org_owners SET owner_id = ${run.ownerId}
        WHERE provider = ${run.provider} AND owner_key = lower(${run.owner}) AND org_id = ${owningOrg.orgId}
          AND owner_id IS NULL`

const noLink = { defaultBranch: null, newest: null, pins: { workflow: null, environment: null } }

/**
 * Registers a run, in a transaction. The event `deployment.registered` belongs to it, when `recordRun` returns a row: a run
 * that was recorded before returns none.
 */
export const registerRun = Effect.fnUntraced(function* (
  sql: Sql,
  limit: Limited.Limited,
  deployment: NewDeployment,
): Effect.fn.Return<Registered, Effect.Error<ReturnType<typeof createProject>>> {
  const { now, rules, run } = deployment
  // Nearly every run is of a repository whose id and name are linked: no link changes, so the lock of the project's row is
  // enough.
  const [unchanged] = yield* findLinkedProjects(sql, sql`${hasId(sql, deployment)} AND ${isLinkedByName(sql, run)}`)
  if (unchanged === undefined) {
    yield* lockRepositoryId(sql, run.repositoryId)
    yield* lockRepositoryName(sql, run)
    yield* freeLinks(sql, run)
  }
  const linked = unchanged ?? (yield* findLinked(sql, deployment))
  const owningOrg = yield* findOwningOrg(sql, deployment)
  const ownerIds = linked?.repositoryId == null ? yield* findOwnerIds(sql, run) : []
  const admission = admitRun(rules, run, { linked, owningOrg, ownerIds })
  if (admission._tag === "Refuse") return { _tag: "Refused", reason: admission.reason }

  const project =
    admission._tag === "Record" ? admission.project : yield* createProject(sql, limit, deployment, admission.orgId)
  const effects = effectsOf(rules, run, "pins" in project ? project : noLink, now)
  yield* proveOwner(sql, deployment, owningOrg)
  yield* recordRun(sql, deployment, project, effects)
  return { _tag: "Registered", projectId: project.id, preview: effects.preview }
})
