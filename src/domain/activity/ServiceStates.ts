import { Context, DateTime, Effect, Layer } from "effect"
import type { Unavailable } from "../Errors.ts"
import { requireAdministrator } from "../Principal.ts"
import { ActivityRepository } from "./ActivityRepository.ts"

/** The state of the service for its operator: what each replica measured, and the database. */
export class ServiceStates extends Context.Service<ServiceStates>()("gatehouse/domain/ServiceStates", {
  make: Effect.gen(function* () {
    const repository = yield* ActivityRepository
    const readiness = yield* Readiness
    const { bytes } = yield* DatabaseSize
    // PostgreSQL looks at every file for it. Its failure says nothing that `writable` does not say.
    const size = yield* Effect.cachedWithTTL(
      Effect.orElseSucceed(bytes, () => null),
      "1 minute",
    )

    return {
      /** For the administrator. */
      read: Effect.gen(function* () {
        yield* requireAdministrator
        const replicas = yield* repository.replicas(yield* DateTime.now)
        const { writable } = yield* readiness.check
        return { replicas, database: { bytes: yield* size, writable } }
      }).pipe(Effect.withSpan("ServiceStates.read")),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** The state of a database that answers. */
export interface DatabaseState {
  /** Whether it accepts writes. */
  readonly writable: boolean
  /** What makes the service slower, in a sentence. */
  readonly warning?: string
}

/** Whether this replica can serve requests. */
export class Readiness extends Context.Service<
  Readiness,
  {
    /** Succeeds when the database answers and has its migrations. */
    readonly check: Effect.Effect<DatabaseState, Unavailable>
  }
>()("gatehouse/domain/Readiness") {}

/** How much the database stores. */
export class DatabaseSize extends Context.Service<
  DatabaseSize,
  {
    /** All tables and indexes, in bytes, without the log of changes (WAL). */
    readonly bytes: Effect.Effect<number, Unavailable>
  }
>()("gatehouse/domain/DatabaseSize") {}
