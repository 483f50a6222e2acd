import { Context, Effect, Layer, Schema } from "effect"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { InvalidRequest, LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import { type OrgScope, requireOrg } from "../Principal.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { KeyMemory } from "../KeyMemory.ts"
import { RoleName } from "./KeySettings.ts"
import { Permissions } from "./Permission.ts"

/** A named set of permissions of an org. */
export const Role = Schema.Struct({
  name: RoleName,
  permissions: Permissions.annotate({
    description: "What keys with the role may do: at most 100 permissions.",
    examples: [["models.gpt-5.use", "files.*"]],
  }),
}).annotate({ identifier: "Role" })
export interface Role extends Schema.Schema.Type<typeof Role> {}

export const PutRole = Schema.Struct({ permissions: Role.fields.permissions }).annotate({ identifier: "PutRole" })

export const RoleList = Schema.Struct({
  roles: Schema.Array(Role).annotate({ description: "The roles of the org, at most 100." }),
}).annotate({ identifier: "RoleList" })

/** The roles of an org. */
export const maxRoles = 100

export const roleNotFound = () => new NotFound({ error: "The org has no such role." })
export const tooManyRoles = () =>
  new LimitReached({ error: `The org has ${maxRoles} roles, the most that it can have. Delete one that no key has.` })

/** Whose roles a key can have: those of its org, or of the org of its project. */
type RoleOwner = { readonly orgId: string } | { readonly scope: OrgScope; readonly projectId: string }

/** The roles of orgs. */
export class RoleRepository extends Context.Service<
  RoleRepository,
  {
    /** All roles of the org, in the order of their names. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<Role>, Unavailable>
    /** Creates or replaces a role, and notifies every replica. */
    readonly put: (
      orgId: string,
      role: Role,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** Deletes a role, and notifies every replica. Keys keep its name, which grants nothing. */
    readonly remove: (orgId: string, name: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /** The first name that is no role of the owner; `undefined` for an owner that does not exist. */
    readonly firstMissing: (
      owner: RoleOwner,
      names: ReadonlyArray<string>,
    ) => Effect.Effect<string | undefined, Unavailable>
  }
>()("gatehouse/domain/Roles/RoleRepository") {}

/** Makes the check that a key gets only roles that exist. */
export const makeRoleCheck = Effect.map(
  RoleRepository,
  ({ firstMissing }) =>
    (owner: RoleOwner, names: ReadonlyArray<string> | null | undefined) =>
      names == null || names.length === 0
        ? Effect.void
        : Effect.flatMap(firstMissing(owner, names), (missing) =>
            missing === undefined
              ? Effect.void
              : new InvalidRequest({ error: `roles: the org has no role ${missing}. Put it first.` }),
          ),
)

/** Named sets of permissions, changed in one place for all keys that have them. */
export class Roles extends Context.Service<Roles>()("gatehouse/domain/Roles", {
  make: Effect.gen(function* () {
    const repository = yield* RoleRepository
    const orgs = yield* OrgRepository
    const audit = yield* AuditLog
    const { forgetRoles } = yield* KeyMemory

    return {
      list: Effect.fn("Roles.list")(function* (orgId: string) {
        yield* requireOrg(orgId)
        const found = yield* repository.list(orgId)
        if (found.length === 0) yield* orgs.find(orgId)
        return found
      }),

      put: Effect.fn("Roles.put")(function* (orgId: string, name: string, input: typeof PutRole.Type) {
        yield* requireOrg(orgId)
        const role = { name, permissions: [...new Set(input.permissions)] }
        const entry = yield* audit.entry({ action: "role.put", target: orgId, details: { ...role } })
        yield* repository.put(orgId, role, entry)
        yield* forgetRoles(orgId)
        return role
      }),

      remove: Effect.fn("Roles.remove")(function* (orgId: string, name: string) {
        yield* requireOrg(orgId)
        const entry = yield* audit.entry({ action: "role.delete", target: orgId, details: { name } })
        yield* repository.remove(orgId, name, entry)
        yield* forgetRoles(orgId)
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
