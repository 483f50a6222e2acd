import { DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { Deployment, subdomainFor } from "../../domain/deployments/Deployment.ts"
import {
  type DeploymentFilter,
  deploymentNotFound,
  DeploymentRepository,
  type NewDeployment,
  type Registered,
} from "../../domain/deployments/Deployments.ts"
import type { Page } from "../../domain/Page.ts"
import {
  newestOf,
  admitRun,
  effectsOf,
  isNamed,
  type LinkedProject,
  type OwningOrg,
  type RunEffects,
} from "../../domain/deployments/registration.ts"
import { projectNotFound } from "../../domain/projects/Projects.ts"
import { audited } from "../audit/audited.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { afterCursor, date, decodePage, inScope, listedId, pageOf, Time, dateOrNull } from "../database/fragments.ts"
import * as ByteLimit from "../orgs/enforceByteLimit.ts"
import * as Limits from "../orgs/enforceLimits.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import {
  orgExists,
  defaultOrg,
  isLinkedByName,
  lockRepositoryId,
  lockRepositoryName,
} from "../projects/repositoryLinks.ts"
import { decodeProjects, projectColumns } from "../projects/projectsSql.ts"
import type { CiRun } from "../../domain/deployments/CiRun.ts"
import { newRowBytes } from "../../domain/orgs/StoredBytes.ts"
import { emit, emitted } from "../queue/emitEvents.ts"

const Row = Schema.Struct({ ...Deployment.fields, createdAt: Time })
const decode = decodePage(Row)

interface PromotedRow {
  readonly runId: string
  readonly runAttempt: number
  readonly at: Date
  /** Whether the run is of the repository that is linked now: runs of another one have another order. */
  readonly isOfLink: boolean
}

/** Deployments in PostgreSQL. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const limit = yield* Limits.make("projects")
    const bytes = yield* ByteLimit.make
    const columns = sql.literal(`
      id, project_id AS "projectId", org_id AS "orgId", provider, branch, ref, sha, preview,
      preview_reason AS "previewReason", pull_request AS "pullRequest", run_id AS "runId", run_attempt AS "runAttempt", workflow, actor,
      event_name AS "eventName", environment, created_at AS "createdAt"`)

    /**
     * The conditions of a list in a project, and its order. Those of a filter are in the form of its index (ADR 14).
     *
     * Planner (the filter of deployments with its project): by the columns, a plan that expects many deployments of
     * each branch reads all of the project.
     */
    const matches = (project: Statement.Fragment, { branch, preview, ...page }: Page & DeploymentFilter) => {
      if (branch === undefined && preview === undefined) {
        return sql`project_id = ${project} AND ${afterCursor(sql, page, "newest")} ORDER BY id DESC`
      }
      const isBranch = sql`md5(project_id || ' ' || branch) = md5(${project} || ' ' || ${branch ?? null}::text)
        AND branch = ${branch ?? null}`
      const isPreview = sql`preview = ${preview ?? null}::boolean`
      const filter =
        branch === undefined ? isPreview : preview === undefined ? isBranch : sql`${isBranch} AND ${isPreview}`
      const id = sql.literal(listedId)
      return sql`project_id || '' = ${project} AND ${filter} AND ${id} < ${page.cursor ?? "~"} ORDER BY ${id} DESC`
    }

    /**
     * Records a run in a project, unless it was recorded before, and updates the project, in one statement. Returns a
     * row if it recorded the run.
     *
     * @param version the version of a project that is not locked: the run is recorded only if the project still has it
     */
    const recordRun = (
      { run, deploymentId, newProjectId, now, event }: NewDeployment,
      { id, orgId }: Pick<LinkedProject, "id" | "orgId">,
      { previewReason, defaultBranch, becomesCurrent, newest }: RunEffects,
      version?: string,
    ) => {
      const isVersion = version === undefined ? sql.literal("true") : sql`p.xmin = ${version}::xid`
      const size = newRowBytes(run)
      const statement = Effect.suspend(
        () => sql<{ id: string }>`
          WITH project AS (
            SELECT p.id, p.org_id FROM projects p JOIN orgs org ON org.id = p.org_id
            WHERE p.id = ${id} AND p.org_id = ${orgId} AND ${isVersion} AND ${bytes.fits(orgId)} FOR NO KEY UPDATE OF p
          ), recorded AS (
            INSERT INTO deployments (id, org_id, project_id, provider, issuer, repository_id, issued_at, branch, ref,
              sha, preview,
              preview_reason, pull_request, run_id, run_attempt, workflow, actor, event_name, environment, created_at)
            SELECT ${deploymentId}, org_id, id, ${run.provider}, ${run.issuer}, ${run.repositoryId},
              ${dateOrNull(run.issuedAt)}::timestamptz, ${run.branch}, ${run.ref}, ${run.sha},
                ${previewReason !== null},
              ${previewReason}, ${run.pullRequest}::int, ${run.runId}, ${run.runAttempt}::int, ${run.workflow},
                ${run.actor}, ${run.eventName}, ${run.environment},
              ${date(now)}::timestamptz
            FROM project
            ON CONFLICT (project_id, provider, run_id, run_attempt) DO NOTHING
            RETURNING id, project_id, org_id
          )${emit(
            sql,
            event,
            sql`(SELECT org_id AS "orgId", project_id FROM recorded)`,
            (body) => sql`replace(${body}, ${newProjectId}, project_id)`,
          )}
          UPDATE projects SET repository_id = ${run.repositoryId}, issuer = ${run.issuer},
            host_provider = ${run.provider},
            host_owner = ${run.owner}, host_repo = ${run.repo}, repository_owner_id = ${run.ownerId},
            default_branch = ${defaultBranch}, updated_at = ${date(now)}, newest_run_id = ${newest?.runId ?? null},
            newest_run_attempt = ${newest?.runAttempt ?? null}::int,
              newest_run_at = ${dateOrNull(newest?.at ?? null)}::timestamptz,
            current_deployment_id = CASE WHEN ${becomesCurrent} THEN recorded.id ELSE current_deployment_id END
          FROM recorded WHERE projects.id = recorded.project_id AND projects.org_id = recorded.org_id
          RETURNING recorded.id`,
      )
      const recorded = bytes.storing(orgId, size, ({ length }) => length * size, statement, "measured_bytes")
      return event === undefined
        ? recorded
        : Effect.tap(recorded, ({ length }) => (length === 0 ? Effect.void : emitted(sql)))
    }

    /** Creates a project for a repository, with the first free subdomain of its name. */
    const createProject = Effect.fnUntraced(function* (
      { run, newProjectId, newOrgId, now }: NewDeployment,
      owningOrg: string | null,
    ) {
      const at = date(now)
      const orgId = owningOrg ?? (yield* defaultOrg(sql, newOrgId, at))
      const create = Effect.gen(function* () {
        for (let n = 1; ; n++) {
          const [created] = yield* sql`
            INSERT INTO projects (id, org_id, name, subdomain, created_at, updated_at)
            VALUES (${newProjectId}, ${orgId}, ${run.repo}, ${subdomainFor(run.owner, run.repo, n, newProjectId)},
              ${at}, ${at})
            ON CONFLICT (subdomain) DO NOTHING
            RETURNING id`
          if (created !== undefined) return
        }
      })
      yield* limit.within(Limits.orgOwner(sql, orgId), { bytes: newRowBytes(run) }, create)
      return { id: newProjectId, orgId }
    })

    /**
     * Frees the links of a repository from projects of deleted orgs, which have rows until a sweep has removed them.
     */
    const freeLinks = (run: CiRun) => sql`
      UPDATE projects SET repository_id = NULL, issuer = NULL, host_owner = NULL, host_repo = NULL
      WHERE (repository_id = ${run.repositoryId} OR (${isLinkedByName(sql, run)})) AND NOT ${sql.literal(orgExists())}`

    /** Keeps the owner's id with the `owners` of an org, when the first run of the owner proves it. */
    const proveOwner = ({ run }: NewDeployment, owningOrg: OwningOrg | undefined) =>
      owningOrg !== undefined && provesOwner(run, owningOrg)
        ? sql`
            UPDATE org_owners SET owner_id = ${run.ownerId}
            WHERE provider = ${run.provider} AND owner_key = lower(${run.owner}) AND org_id = ${owningOrg.orgId}
              AND owner_id IS NULL`
        : Effect.void

    /**
     * Finds whether the deployment that was recorded for a run is a preview: the claims or the pins may differ since.
     */
    const findRecorded = ({ run }: NewDeployment, { id, orgId }: Pick<LinkedProject, "id" | "orgId">) =>
      Effect.map(
        sql<{ readonly preview: boolean }>`
          SELECT preview FROM deployments
          WHERE project_id = ${id} AND org_id = ${orgId} AND provider = ${run.provider} AND run_id = ${run.runId}
            AND run_attempt = ${run.runAttempt}::int`,
        ([recorded]) => recorded,
      )

    /**
     * Registers a run that changes neither the link of its project nor an owner, without a transaction: reads the
     * project, decides, and records the run if the project has not changed since. Returns `undefined` for every other
     * run, and changes nothing.
     */
    const registerUnchanged = Effect.fnUntraced(function* (deployment: NewDeployment) {
      const { now, rules, run } = deployment
      const seen = yield* findSeenProject(deployment)
      if (seen === undefined || provesOwner(run, seen.owningOrg)) return undefined
      // A link with the id of its repository, which the run has proved, needs no `ownerIds`.
      const admission = admitRun(rules, run, { linked: seen.linked, owningOrg: seen.owningOrg, ownerIds: [] })
      if (admission._tag !== "Record") return undefined
      const effects = effectsOf(rules, run, admission.project, now)
      const [recorded] = yield* recordRun(deployment, admission.project, effects, seen.version)
      return recorded && registered(admission.project, effects.previewReason !== null)
    })

    /** Registers any run, in a transaction. */
    const registerLocked = Effect.fnUntraced(function* (deployment: NewDeployment) {
      const { now, rules, run } = deployment
      const unchanged = yield* findUnchanged(deployment)
      // The lock of the project's row is enough when no link changes.
      if (unchanged === undefined) {
        yield* lockRepositoryId(sql, run.repositoryId)
        yield* lockRepositoryName(sql, run)
        yield* freeLinks(run)
      }
      const linked = unchanged ?? (yield* findLinked(deployment))
      const owningOrg = yield* findOwningOrg(deployment)
      const ownerIds = linked?.repositoryId == null ? yield* findOwnerIds(run) : []
      const admission = admitRun(rules, run, { linked, owningOrg, ownerIds })
      if (admission._tag === "Refuse") return { _tag: "Refused", reason: admission.reason } satisfies Registered

      const project =
        admission._tag === "Record" ? admission.project : yield* createProject(deployment, admission.orgId)
      const effects = effectsOf(rules, run, "pins" in project ? project : noLink, now)
      yield* proveOwner(deployment, owningOrg)
      const [recorded] = yield* recordRun(deployment, project, effects)
      const earlier = recorded ? undefined : yield* findRecorded(deployment, project)
      if (recorded === undefined && earlier === undefined) return yield* bytes.refuse(project.orgId)
      return registered(project, earlier?.preview ?? effects.previewReason !== null)
    })

    /** The condition of the project that has the id of a run's repository. */
    const hasId = ({ run }: NewDeployment) => sql`p.repository_id = ${run.repositoryId} AND p.issuer = ${run.issuer}`

    /** The condition of the project that is linked to both the id and the name of a run's repository. */
    const isUnchangedLink = (deployment: NewDeployment) =>
      sql`${hasId(deployment)} AND ${isLinkedByName(sql, deployment.run)}`

    /** Finds and locks the project that is linked to both, in a transaction. */
    const findUnchanged = (deployment: NewDeployment) =>
      Effect.map(findLinkedProjects(isUnchangedLink(deployment)), ([project]) => project)

    /** Finds the project of a repository: by its id, or by its name while no run has proved an id. */
    const findLinked = Effect.fnUntraced(function* (deployment: NewDeployment) {
      const { rules, run } = deployment
      const [byId] = yield* findLinkedProjects(hasId(deployment))
      if (byId !== undefined || !isNamed(rules, run)) return byId
      const byName = yield* findLinkedProjects(
        sql`${isLinkedByName(sql, run)} AND (p.issuer IS NULL OR p.issuer = ${run.issuer})`,
      )
      return byName.find((project) => project.repositoryId === null) ?? byName[0]
    })

    /** The org that has the owner of a run. */
    const selectOwningOrg = ({ rules, run }: NewDeployment) => sql`
      SELECT org_id AS "orgId", owner_id AS "ownerId" FROM org_owners
      WHERE ${isNamed(rules, run)} AND provider = ${run.provider} AND owner_key = lower(${run.owner})
        AND ${sql.literal(orgExists("org_owners"))}`

    const findOwningOrg = (deployment: NewDeployment) =>
      Effect.map(sql<OwningOrg>`${selectOwningOrg(deployment)}`, ([org]) => org)

    /** Finds the project that is linked to both the id and the name of a run's repository, without a lock. */
    const findSeenProject = (deployment: NewDeployment) => {
      const owningOrg = sql`(SELECT row_to_json(o) FROM (${selectOwningOrg(deployment)}) AS o)`
      return Effect.map(
        sql<LinkedRow & { readonly version: string; readonly owningOrg: OwningOrg | null }>`${selectLinked(
          sql`, p.xmin::text AS version, ${owningOrg} AS "owningOrg"`,
          isUnchangedLink(deployment),
        )}`,
        ([row]): SeenProject | undefined => {
          if (row === undefined) return undefined
          const { owningOrg, version, ...linked } = row
          return { linked: toLinked(linked), owningOrg: owningOrg ?? undefined, version }
        },
      )
    }

    const findOwnerIds = ({ provider, owner, issuer }: CiRun) =>
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

    /** Projects of existing orgs, as the table `p`, with what `admitRun` and `effectsOf` need, and further columns. */
    const selectLinked = (further: Statement.Fragment, condition: Statement.Fragment) => sql`
      SELECT p.id, p.org_id AS "orgId", coalesce(p.host_owner, '') AS "hostOwner",
        coalesce(p.host_repo, '') AS "hostRepo", p.repository_id AS "repositoryId", p.issuer,
          p.repository_owner_id AS "ownerId",
        p.default_branch AS "defaultBranch", p.pin_workflow AS workflow, p.pin_environment AS environment,
        json_build_object('runId', p.newest_run_id, 'runAttempt', p.newest_run_attempt, 'at', p.newest_run_at) AS newest
        ${further}
      FROM projects p
      WHERE ${condition} AND ${sql.literal(orgExists("p"))}`

    /** Finds and locks linked projects, in a transaction. */
    const findLinkedProjects = (condition: Statement.Fragment) =>
      Effect.map(sql<LinkedRow>`${selectLinked(sql.literal(""), condition)} FOR NO KEY UPDATE OF p`, (rows) =>
        rows.map(toLinked),
      )

    return DeploymentRepository.of({
      /**
       * Registers a run. Nearly every run is of a repository whose id and name are linked, and needs two statements.
       * The event `deployment.registered` belongs to the row of `recordRun`: a run that was recorded before has none.
       */
      register: Effect.fnUntraced(function* (deployment) {
        return (yield* registerUnchanged(deployment)) ?? (yield* sql.withTransaction(registerLocked(deployment)))
      }, orUnavailable),

      promote: Effect.fnUntraced(
        function* (scope, projectId, deploymentId, now, entry) {
          const [project] = yield* findLinkedProjects(sql`p.id = ${projectId} AND ${inScope(sql, scope, "p.org_id")}`)
          if (project === undefined) return yield* projectNotFound()
          const { issuer, orgId, repositoryId } = project
          const [run] = yield* sql<PromotedRow>`
            SELECT run_id AS "runId", run_attempt AS "runAttempt", coalesce(issued_at, created_at) AS at,
              coalesce(issuer = ${issuer}::text AND repository_id = ${repositoryId}::text, false) AS "isOfLink"
            FROM deployments WHERE id = ${deploymentId} AND project_id = ${projectId} AND org_id = ${orgId}`
          if (run === undefined) return yield* deploymentNotFound()
          const { at, isOfLink, ...position } = run
          const promoted = isOfLink ? { ...position, at: DateTime.fromDateUnsafe(at) } : null
          const newest = newestOf([project.newest, promoted])
          const [row] = yield* audited(
            sql,
            entry,
            sql`
              UPDATE projects SET current_deployment_id = ${deploymentId}, updated_at = ${date(now)},
                newest_run_id = ${newest?.runId ?? null}, newest_run_attempt = ${newest?.runAttempt ?? null}::int,
                newest_run_at = ${newest === null ? null : date(newest.at)}::timestamptz
              WHERE id = ${projectId} AND org_id = ${orgId}
              RETURNING ${projectColumns(sql)}`,
          ).pipe(decodeProjects)
          return row!
        },
        sql.withTransaction,
        orUnavailable,
      ),

      list: (scope, projectId, page) => {
        const project = sql`(
          SELECT id FROM projects WHERE id = ${projectId} AND ${inScope(sql, scope)} AND ${sql.literal(orgExists())})`
        return pageOf(
          sql,
          page,
          sql`
            -- The scope of the project first, so that no row of another org's project is read. The scope of the rows
            -- last:
            -- with both conditions together the planner sorts all deployments of the project.
            SELECT ${columns} FROM (
              SELECT * FROM deployments
              WHERE ${matches(project, page)} LIMIT ${page.limit + 1}
            ) AS newest
            WHERE ${inScope(sql, scope)}`,
          "id",
          ["branch", "ref", "sha", "previewReason", "workflow", "actor", "eventName", "environment"],
          "newest",
        ).pipe(decode, orUnavailable)
      },
    })
  }),
).pipe(Layer.provide(OrgUsage.layer))

/** Whether a run proves the id of an owner of this org, whose name the run has from a trusted issuer. */
const provesOwner = (run: CiRun, owningOrg: OwningOrg | undefined) =>
  owningOrg?.ownerId === null && run.ownerId !== null

const noLink = { defaultBranch: null, newest: null, pins: { workflow: null, environment: null } }

const registered = ({ id, orgId }: Pick<LinkedProject, "id" | "orgId">, preview: boolean): Registered => ({
  _tag: "Registered",
  orgId,
  projectId: id,
  preview,
})

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
}

const toLinked = ({ environment, newest, workflow, ...row }: LinkedRow): LinkedProject => ({
  ...row,
  pins: { workflow, environment },
  newest: toPosition(newest),
})

/** A linked project as it was read, without a lock. */
interface SeenProject {
  readonly linked: LinkedProject
  readonly owningOrg: OwningOrg | undefined
  /** The version of the project's row: `xmin`, which each change of the row sets. */
  readonly version: string
}

/** Projects of an owner that are read for the ids that were proved for its name. */
const maxProjectsOfOwner = 1_000
