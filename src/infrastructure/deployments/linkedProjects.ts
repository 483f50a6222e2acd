import { DateTime, Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { isNamed, type LinkedProject, type OwningOrg } from "../../domain/deployments/admission.ts"
import type { CiRun } from "../../domain/deployments/CiRun.ts"
import type { NewDeployment } from "../../domain/deployments/DeploymentRepository.ts"
import { newestOf } from "../../domain/deployments/runOrder.ts"
import { isLinkedByName, orgExists } from "../projects/links.ts"

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

/** Projects of existing orgs, as the table `p`, with what `admitRun` and `effectsOf` need, and further columns. */
const selectLinked = (sql: Sql, further: Statement.Fragment, condition: Statement.Fragment) => sql`
  SELECT p.id, p.org_id AS "orgId", coalesce(p.host_owner, '') AS "hostOwner", coalesce(p.host_repo, '') AS "hostRepo",
    p.repository_id AS "repositoryId", p.issuer, p.repository_owner_id AS "ownerId",
    p.default_branch AS "defaultBranch", p.pin_workflow AS workflow, p.pin_environment AS environment,
    json_build_object('runId', p.newest_run_id, 'runAttempt', p.newest_run_attempt, 'at', p.newest_run_at) AS newest,
    json_build_object('runId', d.run_id, 'runAttempt', d.run_attempt, 'at', coalesce(d.issued_at, d.created_at)) AS current
    ${further}
  FROM projects p LEFT JOIN deployments d ON d.id = p.current_deployment_id AND d.project_id = p.id
  WHERE ${condition} AND ${sql.literal(orgExists("p"))}`

/** Finds and locks linked projects, in a transaction. */
export const findLinkedProjects = (sql: Sql, condition: Statement.Fragment) =>
  Effect.map(sql<LinkedRow>`${selectLinked(sql, sql.literal(""), condition)} FOR NO KEY UPDATE OF p`, (rows) =>
    rows.map(toLinked),
  )

/** The condition of the project that has the id of a run's repository. */
const hasId = (sql: Sql, { rules, run }: NewDeployment) => {
  // Ids from before issuers were stored are GitHub's.
  const isOldId = run.provider === "github" && isNamed(rules, run)
  return sql`p.repository_id = ${run.repositoryId} AND (p.issuer = ${run.issuer} OR (p.issuer IS NULL AND ${isOldId}))`
}

/** The condition of the project that is linked to both the id and the name of a run's repository. */
const isUnchangedLink = (sql: Sql, deployment: NewDeployment) =>
  sql`${hasId(sql, deployment)} AND ${isLinkedByName(sql, deployment.run)}`

/** Finds and locks the project that is linked to both, in a transaction. */
export const findUnchanged = (sql: Sql, deployment: NewDeployment) =>
  Effect.map(findLinkedProjects(sql, isUnchangedLink(sql, deployment)), ([project]) => project)

/** Finds the project of a repository: by its id, or by its name while no run has proved an id. */
export const findLinked = Effect.fnUntraced(function* (sql: Sql, deployment: NewDeployment) {
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
const selectOwningOrg = (sql: Sql, { rules, run }: NewDeployment) => sql`
  SELECT org_id AS "orgId", owner_id AS "ownerId" FROM org_owners
  WHERE ${isNamed(rules, run)} AND provider = ${run.provider} AND owner_key = lower(${run.owner})
    AND ${sql.literal(orgExists("org_owners"))}`

export const findOwningOrg = (sql: Sql, deployment: NewDeployment) =>
  Effect.map(sql<OwningOrg>`${selectOwningOrg(sql, deployment)}`, ([org]) => org)

/** A linked project as it was read, without a lock. */
export interface SeenProject {
  readonly linked: LinkedProject
  readonly owningOrg: OwningOrg | undefined
  /** The version of the project's row: `xmin`, which each change of the row sets. */
  readonly version: string
}

/** Finds the project that is linked to both the id and the name of a run's repository, without a lock. */
export const findSeenProject = (sql: Sql, deployment: NewDeployment) => {
  const owningOrg = sql`(SELECT row_to_json(o) FROM (${selectOwningOrg(sql, deployment)}) AS o)`
  return Effect.map(
    sql<LinkedRow & { readonly version: string; readonly owningOrg: OwningOrg | null }>`${selectLinked(
      sql,
      sql`, p.xmin::text AS version, ${owningOrg} AS "owningOrg"`,
      isUnchangedLink(sql, deployment),
    )}`,
    ([row]): SeenProject | undefined => {
      if (row === undefined) return undefined
      const { owningOrg, version, ...linked } = row
      return { linked: toLinked(linked), owningOrg: owningOrg ?? undefined, version }
    },
  )
}

/** Projects of an owner that are read for the ids that were proved for its name. */
const maxProjectsOfOwner = 1_000

export const findOwnerIds = (sql: Sql, { provider, owner, issuer }: CiRun) =>
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
