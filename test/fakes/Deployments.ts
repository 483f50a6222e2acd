import { Effect, Layer, Struct } from "effect"
import {
  admitRun,
  effectsOf,
  isNamed,
  type LinkedProject,
  newestOf,
  positionOf,
} from "#src/domain/deployments/registration.ts"
import type { CiRun } from "#src/domain/deployments/CiRun.ts"
import { type Deployment, subdomainFor } from "#src/domain/deployments/Deployment.ts"
import {
  deploymentNotFound,
  DeploymentRepository,
  type NewDeployment,
  type Registered,
} from "#src/domain/deployments/Deployments.ts"
import type { LimitReached } from "#src/domain/Errors.ts"
import { projectNotFound } from "#src/domain/projects/Projects.ts"
import {
  defaultOrg,
  inScope,
  isLinkedTo,
  keepEntry,
  liveProjects,
  needRoom,
  noPins,
  nothingProved,
  ownerKey,
  pageOf,
  type StoredDeployment,
  type StoredProject,
  World,
} from "./World.ts"

const toLinked = ({ pins, proved, row }: StoredProject): LinkedProject => ({
  ...proved,
  pins,
  id: row.projectId,
  orgId: row.orgId,
  hostOwner: row.hostOwner ?? "",
  hostRepo: row.hostRepo ?? "",
  defaultBranch: row.defaultBranch,
})

const toDeployment = (row: StoredDeployment): Deployment => Struct.omit(row, ["at", "issuer", "repositoryId"])

/** Deployments in memory. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.map(World, (world) => {
    const { deployments, orgs, owners, projects } = world

    const findLinked = ({ rules, run }: NewDeployment) => {
      const all = liveProjects(world)
      const byId = all.find(({ proved }) => proved.repositoryId === run.repositoryId && proved.issuer === run.issuer)
      if (byId !== undefined || !isNamed(rules, run)) return byId
      const byName = all.filter(
        (project) => isLinkedTo(project, run) && (project.proved.issuer ?? run.issuer) === run.issuer,
      )
      return byName.find(({ proved }) => proved.repositoryId === null) ?? byName[0]
    }

    const findOwningOrg = ({ rules, run }: NewDeployment) => {
      const owner = isNamed(rules, run) ? owners.get(ownerKey(run)) : undefined
      return owner !== undefined && orgs.has(owner.orgId) ? owner : undefined
    }

    const ownerIds = (run: CiRun) =>
      [...projects.values()].flatMap(({ provider, proved, row }) =>
        provider === run.provider &&
        proved.issuer === run.issuer &&
        proved.ownerId !== null &&
        row.hostOwner?.toLowerCase() === run.owner.toLowerCase()
          ? [proved.ownerId]
          : [],
      )

    const newProject = ({ run, newProjectId, now }: NewDeployment, orgId: string): StoredProject => {
      const taken = new Set([...projects.values()].map(({ row }) => row.subdomain))
      let n = 1
      const wanted = () => subdomainFor(run.owner, run.repo, n, newProjectId)
      while (taken.has(wanted())) n++
      const row = {
        projectId: newProjectId,
        orgId,
        name: run.repo,
        subdomain: wanted(),
        currentDeploymentId: null,
        defaultBranch: null,
        hostOwner: null,
        hostRepo: null,
        createdAt: now,
        updatedAt: now,
      }
      return { row, provider: run.provider, pins: noPins, proved: nothingProved }
    }

    const recordRun = ({ rules, run, deploymentId: id, now }: NewDeployment, stored: StoredProject) => {
      const { row } = stored
      const { projectId, orgId } = row
      const effects = effectsOf(rules, run, toLinked(stored), now)
      const { previewReason, defaultBranch, becomesCurrent, newest } = effects
      const preview = previewReason !== null
      const recorded = [...deployments.values()].find(
        (other) =>
          other.projectId === projectId &&
          other.provider === run.provider &&
          other.runId === run.runId &&
          other.runAttempt === run.runAttempt,
      )
      if (recorded !== undefined) return recorded.preview
      const { owner, repo, ownerId, issuedAt: _, workflowFile: __, ...fields } = run
      const { at } = positionOf(run, now)
      deployments.set(id, { ...fields, preview, previewReason, id, projectId, orgId, createdAt: now, at })
      projects.set(projectId, {
        ...stored,
        row: {
          ...row,
          hostOwner: owner,
          hostRepo: repo,
          defaultBranch,
          currentDeploymentId: becomesCurrent ? id : row.currentDeploymentId,
          updatedAt: now,
        },
        provider: run.provider,
        proved: { repositoryId: run.repositoryId, issuer: run.issuer, ownerId, newest },
      })
      return preview
    }

    const register = Effect.fnUntraced(function* (
      deployment: NewDeployment,
    ): Effect.fn.Return<Registered, LimitReached> {
      const { newOrgId, now, rules, run } = deployment
      const found = findLinked(deployment)
      const owningOrg = findOwningOrg(deployment)
      const linked = found && toLinked(found)
      const admission = admitRun(rules, run, {
        linked,
        owningOrg,
        ownerIds: found?.proved.repositoryId == null ? ownerIds(run) : [],
      })
      if (admission._tag === "Refuse") return { _tag: "Refused", reason: admission.reason }
      let stored = found
      if (admission._tag === "Create") {
        const orgId = admission.orgId ?? defaultOrg(world, newOrgId, now)
        yield* needRoom(world, "projects", orgId)
        stored = newProject(deployment, orgId)
        projects.set(stored.row.projectId, stored)
      }
      if (owningOrg?.ownerId === null) owners.set(ownerKey(run), { ...owningOrg, ownerId: run.ownerId })
      const preview = recordRun(deployment, stored!)
      const { orgId, projectId } = stored!.row
      return { _tag: "Registered", orgId, projectId, preview }
    })

    return DeploymentRepository.of({
      register,

      promote: Effect.fnUntraced(function* (scope, projectId, deploymentId, now, entry) {
        const stored = liveProjects(world).find(({ row }) => row.projectId === projectId && inScope(scope, row.orgId))
        if (stored === undefined) return yield* projectNotFound()
        const deployment = deployments.get(deploymentId)
        if (deployment?.projectId !== projectId) return yield* deploymentNotFound()
        const { proved } = stored
        const isOfLink = deployment.issuer === proved.issuer && deployment.repositoryId === proved.repositoryId
        const row = { ...stored.row, currentDeploymentId: deploymentId, updatedAt: now }
        keepEntry(world, row.orgId, entry)
        const newest = newestOf([proved.newest, isOfLink ? deployment : null])
        const position = newest && { runId: newest.runId, runAttempt: newest.runAttempt, at: newest.at }
        projects.set(projectId, { ...stored, row, proved: { ...proved, newest: position } })
        return row
      }),

      list: (scope, projectId, page) =>
        Effect.sync(() =>
          pageOf(
            [...deployments.values()]
              .filter(
                (row) =>
                  row.projectId === projectId &&
                  projects.has(projectId) &&
                  orgs.has(row.orgId) &&
                  inScope(scope, row.orgId) &&
                  (page.branch ?? row.branch) === row.branch &&
                  (page.preview ?? row.preview) === row.preview,
              )
              .map(toDeployment),
            (row) => row.id,
            page,
            -1,
          ),
        ),
    })
  }),
)
