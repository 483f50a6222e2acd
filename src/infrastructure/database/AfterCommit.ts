import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { KeyLookup } from "../../domain/keys/KeyLookup.ts"
import { Wakeups } from "../../domain/webhooks/Wakeups.ts"

/** Keys are forgotten once the transaction at hand is committed; if it fails, they are not. */
export const keys = Layer.effect(
  KeyLookup,
  Effect.zipWith(KeyLookup, SqlClient.SqlClient, (lookup, { afterCommit }) =>
    KeyLookup.of({ ...lookup, forget: (keyId) => afterCommit(lookup.forget(keyId)) }),
  ),
)

/** Word of new jobs goes out once the transaction at hand is committed; if it fails, it does not. */
export const wakeups = Layer.effect(
  Wakeups,
  Effect.zipWith(Wakeups, SqlClient.SqlClient, (wakeups, { afterCommit }) =>
    Wakeups.of({ ...wakeups, jobs: (orgId) => afterCommit(wakeups.jobs(orgId)) }),
  ),
)
