import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { KeyLookup } from "../../domain/keys/KeyLookup.ts"
import { Wakeups } from "../../domain/Wakeups.ts"

/** `forget` of a key runs after the current transaction commits, and not at all if it fails. */
export const keys = Layer.effect(
  KeyLookup,
  Effect.zipWith(KeyLookup, SqlClient.SqlClient, (lookup, { afterCommit }) =>
    KeyLookup.of({
      ...lookup,
      imported: afterCommit(lookup.imported),
      forget: (keyId) => afterCommit(lookup.forget(keyId)),
      forgetOwner: (...owner) => afterCommit(lookup.forgetOwner(...owner)),
      forgetRoles: (orgId) => afterCommit(lookup.forgetRoles(orgId)),
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
