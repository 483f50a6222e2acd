import { Effect, Layer } from "effect"
import { orgNotFound } from "#src/domain/Principal.ts"
import { maxRoles, roleNotFound, RoleRepository, tooManyRoles } from "#src/domain/keys/Roles.ts"
import { inScope, keepEntry, World } from "./World.ts"

/** Roles in memory. */
export const layer = Layer.effect(
  RoleRepository,
  Effect.map(World, (world) => {
    const { orgs, projects, roles } = world
    const rolesOf = (orgId: string) => (orgs.has(orgId) ? (roles.get(orgId) ?? new Map<string, never>()) : new Map())

    return RoleRepository.of({
      list: (orgId) =>
        Effect.sync(() => {
          const sorted = [...rolesOf(orgId)].map(([name, permissions]) => ({ name, permissions }))
          sorted.sort((a, b) => (a.name < b.name ? -1 : 1))
          return sorted
        }),

      put: Effect.fnUntraced(function* (orgId, { name, permissions }, entry) {
        if (!orgs.has(orgId)) return yield* orgNotFound()
        const own = roles.get(orgId) ?? new Map<string, ReadonlyArray<string>>()
        if (!own.has(name) && own.size >= maxRoles) return yield* tooManyRoles()
        keepEntry(world, orgId, entry)
        roles.set(orgId, own.set(name, permissions))
      }),

      remove: Effect.fnUntraced(function* (orgId, name, entry) {
        if (!rolesOf(orgId).has(name)) return yield* roleNotFound()
        keepEntry(world, orgId, entry)
        rolesOf(orgId).delete(name)
      }),

      firstMissing: (owner, names) =>
        Effect.sync(() => {
          const project = "orgId" in owner ? undefined : projects.get(owner.projectId)?.row
          const orgId =
            "orgId" in owner ? owner.orgId : project && inScope(owner.scope, project.orgId) ? project.orgId : ""
          return orgs.has(orgId) ? names.find((name) => !rolesOf(orgId).has(name)) : undefined
        }),
    })
  }),
)
