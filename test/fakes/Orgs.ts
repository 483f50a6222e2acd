import { Effect, Layer } from "effect"
import { orgNotFound } from "#src/domain/Caller.ts"
import { OrgRepository } from "#src/domain/Orgs.ts"
import { findOr, inScope, pageOf, World } from "./World.ts"

/** Orgs in memory. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.map(World, ({ orgs }) =>
    OrgRepository.of({
      insert: (org) =>
        Effect.suspend(() => {
          if (orgs.has(org.orgId)) return Effect.die(new Error("The id is taken"))
          orgs.set(org.orgId, org)
          return Effect.void
        }),

      find: (orgId) => Effect.suspend(() => findOr(orgs.get(orgId), orgNotFound)),

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
