import type { Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "./Errors.ts"

/** Whether requests can be served. */
export class Readiness extends Context.Service<
  Readiness,
  {
    /** Succeeds when the database answers and its migrations are in; says whether it can be written. */
    readonly check: Effect.Effect<{ readonly writable: boolean }, Unavailable>
  }
>()("gatehouse/domain/Readiness") {}
