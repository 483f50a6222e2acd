import type { Effect } from "effect"
import { Context } from "effect"
import type { Unavailable } from "./Errors.ts"

/** How much the database stores. */
export class DatabaseSize extends Context.Service<
  DatabaseSize,
  {
    /** All tables and indexes, in bytes, without the log of changes (WAL). */
    readonly bytes: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/DatabaseSize") {}
