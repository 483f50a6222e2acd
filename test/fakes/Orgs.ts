import { Effect, Layer, Record } from "effect"
import { orgNotFound } from "#src/domain/Principal.ts"
import { formatOwner } from "#src/domain/RepositoryOwner.ts"
import { Conflict } from "#src/domain/Errors.ts"
import { erasedKinds } from "#src/domain/orgs/OrgErasure.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { amountsOf, findOr, hasText, inScope, keepEntry, ownerKey, pageOf, World } from "./World.ts"

/** Orgs in memory. */
export const layer = Layer.effect(
  OrgRepository,
  Effect.map(World, (world) => {
    const { audit, orgs, overrides, owners, used } = world
    const ownersOf = (orgId: string) =>
      [...owners.values()]
        .filter((owner) => owner.orgId === orgId && orgs.has(orgId))
        .map(({ owner, provider }) => ({ provider, owner }))

    return OrgRepository.of({
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
          (org) => ({
            org,
            overrides: overrides.get(orgId) ?? {},
            used: amountsOf({ used }, orgId),
            owners: ownersOf(orgId),
            keyPrefix: world.keyPrefixes.get(orgId) ?? null,
            retentionDays: world.retentionDays.get(orgId) ?? null,
            strictEvents: world.strictEvents.has(orgId),
          }),
        ),

      owners: (orgId) => Effect.sync(() => ownersOf(orgId)),

      update: Effect.fnUntraced(function* (orgId, changes, entry) {
        const { keyPrefix, name, limits, owners: asked, retentionDays, strictEvents } = changes
        const org = yield* findOr(orgs.get(orgId), orgNotFound)
        const taken = asked
          ?.map((owner) => owners.get(ownerKey(owner)))
          .find((owner) => (owner?.orgId ?? orgId) !== orgId)
        if (taken !== undefined) {
          return yield* new Conflict({
            error: `owners: another org has the owner ${formatOwner(taken)}. Remove it there first.`,
          })
        }
        keepEntry({ audit }, orgId, entry)
        if (name !== undefined) orgs.set(orgId, { ...org, name })
        if (keyPrefix !== undefined) world.keyPrefixes.set(orgId, keyPrefix)
        if (retentionDays !== undefined) world.retentionDays.set(orgId, retentionDays)
        if (strictEvents === true && !world.strictEvents.has(orgId)) world.strictEvents.set(orgId, entry.id)
        if (strictEvents === false) world.strictEvents.delete(orgId)
        const changed = Object.entries({ ...overrides.get(orgId), ...limits })
        overrides.set(orgId, Object.fromEntries(changed.filter(([, value]) => value !== null)))
        if (asked === undefined) return
        const keys = new Set(asked.map(ownerKey))
        for (const [key, owner] of owners) if (owner.orgId === orgId && !keys.has(key)) owners.delete(key)
        const unique = new Map(asked.map((owner) => [ownerKey(owner), owner]))
        for (const [key, owner] of unique) {
          const ownerId = owners.get(key)?.ownerId ?? null
          // At the end, so that the map has the order of the list.
          owners.delete(key)
          owners.set(key, { ...owner, orgId, ownerId })
        }
      }),

      remove: Effect.fnUntraced(function* (orgId, _, entry) {
        yield* findOr(orgs.get(orgId), orgNotFound)
        keepEntry({ audit }, orgId, entry)
        orgs.delete(orgId)
        if (world.defaultOrgId === orgId) world.defaultOrgId = undefined
      }),

      // Nothing is erased in memory: the erasure never ends.
      erasure: (orgId) =>
        Effect.suspend(() => {
          const ofDeletion = [...audit.values()].find((one) => one.orgId === orgId && one.row.action === "org.delete")
          return Effect.map(findOr(ofDeletion?.row, orgNotFound), ({ actor, at, person }) => ({
            orgId,
            deletedAt: at,
            actor,
            person,
            endedAt: null,
            progress: 0,
            erased: Record.map(erasedKinds, () => 0),
          }))
        }),

      findNamed: (scope, { text, ...page }) =>
        Effect.sync(() => {
          const { keys, projects } = world
          const named = [
            ...[...projects].map(([id, { row }]) => ({
              kind: "project" as const,
              id,
              name: row.name,
              orgId: row.orgId,
            })),
            ...[...keys].map(([id, { orgId, row }]) => ({ kind: "key" as const, id, name: row.name, orgId })),
          ]
          const found = named.flatMap((one) => {
            const orgName = orgs.get(one.orgId)?.name
            return orgName === undefined || !inScope(scope, one.orgId) || !hasText(text, one.name)
              ? []
              : [{ ...one, orgName }]
          })
          return pageOf(found, ({ id }) => id, page, -1)
        }),

      list: (scope, page, { order, owns, text } = {}) =>
        Effect.sync(() => {
          const { deployments, keys, projects } = world
          const owner = (id: string) =>
            projects.get(id)?.row.orgId ??
            keys.get(id)?.orgId ??
            projects.get(deployments.get(id)?.projectId ?? "")?.row.orgId
          return pageOf(
            [...orgs.values()].filter(
              ({ name, orgId }) =>
                inScope(scope, orgId) && hasText(text, name, orgId) && (owns === undefined || owner(owns) === orgId),
            ),
            (org) => org.orgId,
            page,
            order === "newest" ? -1 : 1,
          )
        }),
    })
  }),
)
