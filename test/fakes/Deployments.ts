import { Effect, Layer } from "effect"
import type { CiRun } from "#src/domain/deployments/Deployment.ts"
import { subdomainFor } from "#src/domain/deployments/Deployment.ts"
import type { NewDeployment, Registered } from "#src/domain/deployments/Deployments.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import type { LimitReached } from "#src/domain/Errors.ts"
import type { StoredProject } from "./World.ts"
import { defaultOrg, inScope, isLinkedTo, needRoom, pageOf, World } from "./World.ts"

/** Deployments in memory. */
export const layer = Layer.effect(
  DeploymentRepository,
  Effect.map(World, (world) => {
    const { deployments, projects } = world

    const findLinked = (run: CiRun) => {
      const all = [...projects.values()]
      const byName = all.filter(({ row }) => isLinkedTo(row, run.owner, run.repo))
      return (
        all.find((project) => project.repositoryId === run.repositoryId) ??
        byName.find((project) => project.repositoryId === null) ??
        byName[0]
      )
    }

    const newProject = ({ run, projectId, defaultOrgId, now }: NewDeployment): StoredProject => {
      const taken = new Set([...projects.values()].map(({ row }) => row.subdomain))
      let n = 1
      while (taken.has(subdomainFor(run.owner, run.repo, n))) n++
      return {
        row: {
          projectId,
          orgId: defaultOrg(world, defaultOrgId, now),
          name: run.repo,
          subdomain: subdomainFor(run.owner, run.repo, n),
          currentDeploymentId: null,
          defaultBranch: null,
          hostOwner: null,
          hostRepo: null,
          createdAt: now,
          updatedAt: now,
        },
        repositoryId: null,
      }
    }

    const register = Effect.fnUntraced(function* (
      deployment: NewDeployment,
    ): Effect.fn.Return<Registered, LimitReached> {
      const { run, deploymentId: id, now } = deployment
      const found = findLinked(run)
      if (found === undefined && !deployment.createProject) return { _tag: "NotLinked" }
      if (found !== undefined && found.repositoryId !== null && found.repositoryId !== run.repositoryId) {
        return { _tag: "NameReused" }
      }
      if (found === undefined) {
        yield* needRoom(world, "projects", defaultOrg(world, deployment.defaultOrgId, now))
      }
      const { row } = found ?? newProject(deployment)
      const { projectId, orgId } = row
      const isKnown = [...deployments.values()].some(
        (other) => other.projectId === projectId && other.runId === run.runId && other.runAttempt === run.runAttempt,
      )
      if (!isKnown) {
        const { owner, repo, repositoryId, defaultBranchCandidate, ...fields } = run
        deployments.set(id, { ...fields, id, projectId, orgId, provider: "github", createdAt: now })
        const defaultBranch = row.defaultBranch ?? defaultBranchCandidate
        const isCurrent = !run.preview && run.branch === defaultBranch
        projects.set(projectId, {
          row: {
            ...row,
            hostOwner: owner,
            hostRepo: repo,
            defaultBranch,
            currentDeploymentId: isCurrent ? id : row.currentDeploymentId,
            updatedAt: now,
          },
          repositoryId,
        })
      }
      return { _tag: "Registered", projectId }
    })

    return DeploymentRepository.of({
      register,

      list: (scope, projectId, page) =>
        Effect.sync(() =>
          pageOf(
            [...deployments.values()].filter((row) => row.projectId === projectId && inScope(scope, row.orgId)),
            (row) => row.id,
            page,
            -1,
          ),
        ),
    })
  }),
)
