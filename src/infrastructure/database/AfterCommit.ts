import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { KeyMemory } from "../../domain/KeyMemory.ts"
import { Wakeups } from "../../domain/Wakeups.ts"

/** Keys are forgotten after the current transaction commits, and not at all if it fails. */
export const keys = Layer.effect(
  KeyMemory,
  Effect.zipWith(KeyMemory, SqlClient.SqlClient, (memory, { afterCommit }) =>
    KeyMemory.of({
      imported: afterCommit(memory.imported),
      forget: (keyId) => afterCommit(memory.forget(keyId)),
      forgetOwner: (...owner) => afterCommit(memory.forgetOwner(...owner)),
      forgetRoles: (orgId) => afterCommit(memory.forgetRoles(orgId)),
    }),
  ),
)

/**
 * Sends wake-ups after the current transaction commits: a worker that wakes earlier does not find the work. A
 * transaction that fails sends none.
 */
export const wakeups = Layer.effect(
  Wakeups,
  Effect.zipWith(Wakeups, SqlClient.SqlClient, (wakeups, { afterCommit }) =>
    Wakeups.of({
      ...wakeups,
      deliveries: afterCommit(wakeups.deliveries),
      sweeps: afterCommit(wakeups.sweeps),
      jobs: (orgId) => afterCommit(wakeups.jobs(orgId)),
    }),
  ),
)
