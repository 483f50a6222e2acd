import { Context, type Effect } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { Lease, LeaseAsk } from "./KeyCounter.ts"

/** A counter, and the key whose use asks it. */
export interface CounterId {
  readonly orgId: string
  readonly counterId: string
}

/** The counters of keys with limits. */
export class KeyCounterRepository extends Context.Service<
  KeyCounterRepository,
  {
    /**
     * Leases a portion of a counter (`KeyCounter.lease`) by the database's clock, in one transaction. Questions of the same
     * time are answered together. `undefined`: there is no such key any more. After a failure it is unknown whether the
     * units are taken: treat them as taken.
     */
    readonly lease: (counter: CounterId, ask: LeaseAsk) => Effect.Effect<Lease | undefined, Unavailable>
  }
>()("gatehouse/domain/keys/KeyCounterRepository") {}
