import type { DateTime, Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "../Errors.ts"

/** The deliveries that are due, whether they have room in their lane or not. Those that are taken up are not due. */
export interface DueDeliveries {
  /** How many; counted up to the limit, and no further. */
  readonly count: number
  /** Since when the longest waiting one is due; `null` when none is. */
  readonly oldestDueAt: DateTime.Utc | null
}

/** How far behind the deliveries are. */
export class Backlog extends Context.Service<
  Backlog,
  {
    /** The deliveries that are due, of every org. */
    readonly due: (now: DateTime.Utc, limit: number) => Effect.Effect<DueDeliveries, Unavailable>
  }
>()("gatehouse/domain/Backlog") {}
