import { Context, type Effect } from "effect"

/**
 * What this process remembers of keys. Each of these runs after the transaction that makes the change, and reaches the
 * other processes, too.
 */
export class KeyMemory extends Context.Service<
  KeyMemory,
  {
    /** Keys were imported: a text of any form may be a key from now on. */
    readonly imported: Effect.Effect<void>
    /** Removes a key. */
    readonly forget: (keyId: string) => Effect.Effect<void>
    /** Removes the keys of an org, or of one of its projects. */
    readonly forgetOwner: (orgId: string, projectId?: string) => Effect.Effect<void>
    /** Removes the keys of an org, one of whose roles was changed. */
    readonly forgetRoles: (orgId: string) => Effect.Effect<void>
  }
>()("gatehouse/domain/KeyMemory") {}
