import { Effect, Layer } from "effect"
import { orgNotFound } from "#src/domain/Principal.ts"
import { Conflict } from "#src/domain/Errors.ts"
import type { Project } from "#src/domain/projects/Project.ts"
import { projectNotFound, ProjectRepository } from "#src/domain/projects/Projects.ts"
import { defaultOrg, findOr, inScope, isLinkedTo, keepEntry, needRoom, pageOf, World } from "./World.ts"

/** Projects in memory. */
export const layer = Layer.effect(
  ProjectRepository,
  Effect.map(World, (world) => {
    const { orgs, projects } = world
    const rows = () => [...projects.values()].map(({ row }) => row)

    return ProjectRepository.of({
      insert: ({ projectId, name, orgId, defaultOrgId, now }, entry) =>
        Effect.gen(function* () {
          const org = orgId ?? defaultOrg(world, defaultOrgId, now)
          if (!orgs.has(org)) return yield* orgNotFound()
          yield* needRoom(world, "projects", org)
          keepEntry(world, org, entry)
          const row: Project = {
            projectId,
            orgId: org,
            name,
            subdomain: null,
            currentDeploymentId: null,
            defaultBranch: null,
            hostOwner: null,
            hostRepo: null,
            createdAt: now,
            updatedAt: now,
          }
          projects.set(projectId, { row, repositoryId: null })
          return row
        }),

      find: (scope, projectId) =>
        Effect.suspend(() =>
          findOr(
            rows().find((row) => row.projectId === projectId && inScope(scope, row.orgId)),
            projectNotFound,
          ),
        ),

      list: (scope, page) =>
        Effect.sync(() =>
          pageOf(
            rows().filter((row) => inScope(scope, row.orgId)),
            (row) => row.projectId,
            page,
          ),
        ),

      update: (scope, projectId, changes, now, entry) =>
        Effect.suspend((): Effect.Effect<Project, Conflict | ReturnType<typeof projectNotFound>> => {
          const stored = projects.get(projectId)
          if (stored === undefined || !inScope(scope, stored.row.orgId)) return Effect.fail(projectNotFound())
          const { hostOwner, hostRepo, subdomain } = changes
          const others = rows().filter((row) => row.projectId !== projectId)
          if (subdomain != null && others.some((row) => row.subdomain === subdomain)) {
            return Effect.fail(new Conflict({ error: "subdomain: Another project has this subdomain." }))
          }
          let { repositoryId } = stored
          if (hostOwner != null && hostRepo != null) {
            if (others.some((row) => isLinkedTo(row, hostOwner, hostRepo))) {
              return Effect.fail(
                new Conflict({ error: "hostOwner, hostRepo: Another project is linked to this repository." }),
              )
            }
            if (!isLinkedTo(stored.row, hostOwner, hostRepo)) repositoryId = null
          } else if (hostOwner === null) {
            repositoryId = null
          }
          keepEntry(world, stored.row.orgId, entry)
          const row: Project = { ...stored.row, ...changes, updatedAt: now }
          projects.set(projectId, { row, repositoryId })
          return Effect.succeed(row)
        }),
    })
  }),
)
