import { Effect, Layer } from "effect"
import { orgNotFound } from "#src/domain/Principal.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { amountsOf, findOr, inScope, keepEntry, pageOf, World } from "./World.ts"

/** Orgs in memory. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.map(World, ({ audit, orgs, overrides, used }) =>
    OrgRepository.of({
      insert: (org, entry) =>
        Effect.sync(() => {
          if (orgs.has(org.orgId)) throw new Error("The id is taken")
          keepEntry({ audit }, org.orgId, entry)
          orgs.set(org.orgId, org)
        }),

      find: (orgId) => Effect.suspend(() => findOr(orgs.get(orgId), orgNotFound)),

      findWithUsage: (orgId) =>
        Effect.map(
          Effect.suspend(() => findOr(orgs.get(orgId), orgNotFound)),
          (org) => ({ org, overrides: overrides.get(orgId) ?? {}, used: amountsOf({ used }, orgId) }),
        ),

      update: (orgId, { name, limits }, entry) =>
        Effect.map(
          Effect.suspend(() => findOr(orgs.get(orgId), orgNotFound)),
          (org) => {
            keepEntry({ audit }, orgId, entry)
            if (name !== undefined) orgs.set(orgId, { ...org, name })
            const changed = Object.entries({ ...overrides.get(orgId), ...limits })
            overrides.set(orgId, Object.fromEntries(changed.filter(([, value]) => value !== null)))
          },
        ),

      list: (scope, page) =>
        Effect.sync(() =>
          pageOf(
            [...orgs.values()].filter((org) => inScope(scope, org.orgId)),
            (org) => org.orgId,
            page,
          ),
        ),
    }),
  ),
)
