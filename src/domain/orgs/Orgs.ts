import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { managedScope, type OrgScope, requireAdministrator, requireOrg } from "../Principal.ts"
import { formatOwner, parseOwner, type RepositoryOwner } from "../RepositoryOwner.ts"
import type { Conflict, NotFound, Unavailable } from "../Errors.ts"
import { KeyMemory } from "../KeyMemory.ts"
import type { CreateOrg, Org, OrgFilter, UpdateOrg } from "./Org.ts"
import { DefaultLimits, limitsOf, type OrgAmounts, type OrgLimitOverrides } from "./OrgLimits.ts"
import type { Named } from "./Named.ts"
import type { OrgErasure } from "./OrgErasure.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"

/** An org, the limits that were set for it, and its usage. */
interface OrgWithUsage {
  readonly org: Org
  readonly overrides: OrgLimitOverrides
  readonly used: OrgAmounts
  readonly owners: ReadonlyArray<RepositoryOwner>
  readonly keyPrefix: string | null
  readonly retentionDays: number | null
  readonly strictEvents: boolean
}

/** Changes of an org for its repository. */
export interface OrgChanges extends Omit<UpdateOrg, "owners"> {
  /** Replaces the owners. An owner that stays keeps the id that its runs have proved. */
  readonly owners?: ReadonlyArray<RepositoryOwner> | undefined
}

/** All orgs. */
export class OrgRepository extends Context.Service<
  OrgRepository,
  {
    readonly insert: (org: Org, entry: AuditEntry) => Effect.Effect<void, Unavailable>
    readonly find: (orgId: string) => Effect.Effect<Org, NotFound | Unavailable>
    readonly findWithUsage: (orgId: string) => Effect.Effect<OrgWithUsage, NotFound | Unavailable>
    /** The owners of repositories that belong to the org; none for an unknown org. */
    readonly owners: (orgId: string) => Effect.Effect<ReadonlyArray<RepositoryOwner>, Unavailable>
    /** Changes an org. Fails with a `Conflict` when another org has one of the owners. */
    readonly update: (
      orgId: string,
      changes: OrgChanges,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
    /**
     * Deletes the org, notifies every replica, and begins its erasure, which is a sweep. From the commit on nothing of
     * the org is found, and no key of it is valid. The audit log stays.
     */
    readonly remove: (
      orgId: string,
      now: DateTime.Utc,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /** How far the erasure of a deleted org is, and its receipt. Fails without its deletion in the audit log. */
    readonly erasure: (orgId: string) => Effect.Effect<OrgErasure, NotFound | Unavailable>
    /** What has a text in its name, newest first, in all orgs of the scope. */
    readonly findNamed: (
      scope: OrgScope,
      page: Page & { readonly text: string },
    ) => Effect.Effect<Found<Named>, Unavailable>
    /** Orgs of the scope. With a text, a page looks at `maxFilteredRows` orgs at most. */
    readonly list: (scope: OrgScope, page: Page, filter?: OrgFilter) => Effect.Effect<Found<Org>, Unavailable>
  }
>()("gatehouse/domain/Orgs/OrgRepository") {}

/** The orgs that the current principal manages. */
export class Orgs extends Context.Service<Orgs>()("gatehouse/domain/Orgs", {
  make: Effect.gen(function* () {
    const repository = yield* OrgRepository
    const random = yield* SecureRandom.SecureRandom
    const audit = yield* AuditLog
    const defaults = yield* DefaultLimits
    const { forgetOwner } = yield* KeyMemory

    const detail = (orgId: string) =>
      Effect.map(repository.findWithUsage(orgId), ({ org, overrides, owners, used, ...settings }) => ({
        ...org,
        owners: owners.map(formatOwner),
        ...settings,
        limits: limitsOf(defaults, overrides),
        used,
      }))

    return {
      /** Creates an org. Only the administrator may do this. */
      create: Effect.fn("Orgs.create")(function* (input: typeof CreateOrg.Type) {
        yield* requireAdministrator
        const org: Org = { orgId: yield* random.ulid, name: input.name, createdAt: yield* DateTime.now }
        const { orgId, name } = org
        const entry = yield* audit.entry({ action: "org.create", target: orgId, details: { name } })
        yield* repository.insert(org, entry)
        return org
      }),

      /** An org with its limits and its usage. */
      get: Effect.fn("Orgs.get")(function* (orgId: string) {
        yield* requireOrg(orgId)
        return yield* detail(orgId)
      }),

      /** The name of the tenant's own org, for those who act for it; undefined for an org that is gone. */
      nameOf: Effect.fn("Orgs.nameOf")(function* (tenant: string) {
        const found = yield* Effect.catchTag(repository.find(tenant), "NotFound", () => Effect.undefined)
        return found?.name
      }),

      /** Changes an org. Only the administrator may do this. */
      update: Effect.fn("Orgs.update")(function* (orgId: string, changes: UpdateOrg) {
        yield* requireAdministrator
        const parsed = changes.owners?.map((owner) => parseOwner(owner)!)
        const entry = yield* audit.entry({ action: "org.update", target: orgId, details: { ...changes } })
        yield* repository.update(orgId, { ...changes, owners: parsed }, entry)
        return yield* detail(orgId)
      }),

      /** Deletes an org with everything in it. Only the administrator may do this. */
      remove: Effect.fn("Orgs.remove")(function* (orgId: string) {
        yield* requireAdministrator
        const entry = yield* audit.entry({ action: "org.delete", target: orgId, details: {} })
        yield* repository.remove(orgId, yield* DateTime.now, entry)
        yield* forgetOwner(orgId)
      }),

      /** How far the erasure of a deleted org is, and its receipt. Only the administrator may do this. */
      erasure: Effect.fn("Orgs.erasure")(function* (orgId: string) {
        yield* requireAdministrator
        return yield* repository.erasure(orgId)
      }),

      /** What has a text in its name, newest first, in all orgs that the principal manages. */
      find: Effect.fn("Orgs.find")(function* (page: Page & { readonly text: string }) {
        const found = yield* repository.findNamed(yield* managedScope, page)
        return { found: found.items, nextCursor: nextCursor(found, ({ id }) => id) }
      }),

      list: Effect.fn("Orgs.list")(function* ({ cursor, limit, ...filter }: Page & OrgFilter) {
        const found = yield* repository.list(yield* managedScope, { cursor, limit }, filter)
        return { orgs: found.items, nextCursor: nextCursor(found, (org) => org.orgId) }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
