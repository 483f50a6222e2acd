import type { Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "./Errors.ts"

/** Whether this replica can serve requests. */
export class Readiness extends Context.Service<
  Readiness,
  {
    /** Succeeds when the database answers and has its migrations. Returns whether it accepts writes. */
    readonly check: Effect.Effect<{ readonly writable: boolean }, Unavailable>
  }
>()("gatehouse/domain/Readiness") {}
