import { Effect, Layer } from "effect"
import { orgNotFound, type OrgScope } from "#src/domain/Principal.ts"
import { Conflict } from "#src/domain/Errors.ts"
import type { Project } from "#src/domain/projects/Project.ts"
import type { RepositoryOwner } from "#src/domain/RepositoryOwner.ts"
import { linkNotFound, projectNotFound, ProjectRepository } from "#src/domain/projects/Projects.ts"
import {
  defaultOrg,
  findOr,
  inScope,
  isLinkedTo,
  keepEntry,
  liveProjects,
  needRoom,
  noPins,
  nothingProved,
  pageOf,
  type StoredProject,
  World,
} from "./World.ts"

/** Projects in memory. */
export const layer = Layer.effect(
  ProjectRepository,
  Effect.map(World, (world) => {
    const { orgs, projects } = world
    const rows = () => liveProjects(world).map(({ row }) => row)
    const findIn = (scope: OrgScope, projectId: string) =>
      findOr(
        liveProjects(world).find(({ row }) => row.projectId === projectId && inScope(scope, row.orgId)),
        projectNotFound,
      )

    /** The fields of a link to a repository: another one must prove its own id. */
    const linked = (stored: StoredProject, repository: RepositoryOwner & { readonly repo: string }) =>
      Effect.suspend(() => {
        const { projectId } = stored.row
        if (liveProjects(world).some((other) => other.row.projectId !== projectId && isLinkedTo(other, repository))) {
          return Effect.fail(
            new Conflict({
              error: "hostOwner and hostRepo: another project is linked to this repository. Remove that link first.",
            }),
          )
        }
        const proved = isLinkedTo(stored, repository) ? stored.proved : nothingProved
        return Effect.succeed({ provider: repository.provider, proved })
      })
    const unlinked = { provider: "github", pins: noPins, proved: nothingProved }

    return ProjectRepository.of({
      insert: ({ projectId, name, orgId, newOrgId, now }, entry) =>
        Effect.gen(function* () {
          const org = orgId ?? defaultOrg(world, newOrgId, now)
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
          projects.set(projectId, { row, ...unlinked })
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

      update: Effect.fnUntraced(function* (scope, projectId, changes, now, entry) {
        const stored = yield* findIn(scope, projectId)
        const { hostOwner, hostRepo, subdomain } = changes
        const others = [...projects.values()].filter(({ row }) => row.projectId !== projectId)
        if (subdomain != null && others.some(({ row }) => row.subdomain === subdomain)) {
          return yield* new Conflict({ error: "subdomain: another project has this subdomain. Choose another one." })
        }
        const link =
          hostOwner != null && hostRepo != null
            ? yield* linked(stored, { provider: "github", owner: hostOwner, repo: hostRepo })
            : hostOwner === null
              ? unlinked
              : {}
        keepEntry(world, stored.row.orgId, entry)
        const { keyPrefix: old, ...unchanged } = stored.row
        const { keyPrefix = old ?? null, ...changed } = changes
        const row: Project = {
          ...unchanged,
          ...changed,
          updatedAt: now,
          ...(keyPrefix === null ? {} : { keyPrefix }),
        }
        projects.set(projectId, { ...stored, ...link, row })
        return row
      }),

      remove: Effect.fnUntraced(function* (scope, projectId, _, entry) {
        const { row } = yield* findIn(scope, projectId)
        keepEntry(world, row.orgId, entry)
        projects.delete(projectId)
        return row.orgId
      }),

      findLink: Effect.fnUntraced(function* (scope, projectId) {
        const { pins, provider, row } = yield* findIn(scope, projectId)
        if (row.hostOwner === null || row.hostRepo === null) return yield* linkNotFound()
        return { provider, hostOwner: row.hostOwner, hostRepo: row.hostRepo, ...pins }
      }),

      putLink: Effect.fnUntraced(function* (scope, projectId, link, now, entry) {
        const stored = yield* findIn(scope, projectId)
        const { environment, hostOwner, hostRepo, provider, workflow } = link
        const changes = yield* linked(stored, { provider, owner: hostOwner, repo: hostRepo })
        keepEntry(world, stored.row.orgId, entry)
        const row = { ...stored.row, hostOwner, hostRepo, updatedAt: now }
        projects.set(projectId, { ...stored, ...changes, row, pins: { workflow, environment } })
        return link
      }),

      removeLink: Effect.fnUntraced(function* (scope, projectId, now, entry) {
        const stored = yield* findIn(scope, projectId)
        if (stored.row.hostOwner === null) return yield* linkNotFound()
        keepEntry(world, stored.row.orgId, entry)
        const row = { ...stored.row, hostOwner: null, hostRepo: null, updatedAt: now }
        projects.set(projectId, { ...stored, ...unlinked, row })
      }),
    })
  }),
)
