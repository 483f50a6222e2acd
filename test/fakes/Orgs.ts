import { Effect, Layer } from "effect"
import { orgNotFound } from "#src/domain/Caller.ts"
import { OrgRepository } from "#src/domain/Orgs.ts"
import { findOr, inScope, keepEntry, pageOf, World } from "./World.ts"

/** Orgs in memory. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.map(World, ({ audit, orgs }) =>
    OrgRepository.of({
      insert: (org, entry) =>
        Effect.sync(() => {
          if (orgs.has(org.orgId)) throw new Error("The id is taken")
          keepEntry({ audit }, org.orgId, entry)
          orgs.set(org.orgId, org)
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
