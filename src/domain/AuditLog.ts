import { Context, DateTime, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry } from "./AuditEntry.ts"
import { CurrentCaller, requireOrg } from "./Caller.ts"
import type { Forbidden, NotFound, Unauthorized, Unavailable } from "./Errors.ts"
import type { Page } from "./Page.ts"
import { toPage } from "./Page.ts"
import { CurrentTenant } from "./Tenant.ts"

/** The id of the request at hand, null where there is none. */
export const RequestId = Context.Reference<string | null>("gatehouse/domain/AuditLog/RequestId", {
  defaultValue: () => null,
})

/** An entry to be kept. */
export interface NewAuditEntry extends AuditEntry {
  readonly orgId: string
}

/** What a change was, told from what it gave. */
export type Change = Pick<NewAuditEntry, "orgId" | "action" | "target" | "details">

/** Where entries are kept, to be read and never changed. */
export class AuditRepository extends Context.Service<
  AuditRepository,
  {
    /** Makes a change and keeps its entry, both or neither; a change that fails leaves no entry. */
    readonly record: <A, E, R>(
      change: Effect.Effect<A, E, R>,
      entry: (made: A) => NewAuditEntry,
    ) => Effect.Effect<A, E | Unavailable, R>
    /** Up to `limit + 1` entries of the org, newest first. Fails when there is no such org. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<ReadonlyArray<AuditEntry>, NotFound | Unavailable>
  }
>()("gatehouse/domain/AuditLog/AuditRepository") {}

const actorOf = CurrentCaller.use(({ caller }) =>
  Effect.succeed(
    caller._tag === "Administrator" || caller._tag === "Anonymous" ? caller._tag.toLowerCase() : `key:${caller.keyId}`,
  ),
)
const actorOfTenant = CurrentTenant.use(({ keyId }) => Effect.succeed(`key:${keyId}`))

/** The log of management operations. */
export class AuditLog extends Context.Service<
  AuditLog,
  {
    /** Makes a change of the current caller, and writes it down with it: both or neither. */
    readonly record: <A, E, R>(
      change: Effect.Effect<A, E, R>,
      describe: (made: A) => Change,
    ) => Effect.Effect<A, E | Unavailable, R | CurrentCaller>
    /** The same for a change that a tenant makes at the webhook interface. */
    readonly recordOfTenant: <A, E, R>(
      change: Effect.Effect<A, E, R>,
      describe: (made: A) => Change,
    ) => Effect.Effect<A, E | Unavailable, R | CurrentTenant>
    /** A page of the org's entries, newest first. */
    readonly list: (
      orgId: string,
      page: Page,
    ) => Effect.Effect<
      { readonly entries: ReadonlyArray<AuditEntry>; readonly nextCursor: string | null },
      NotFound | Unauthorized | Forbidden | Unavailable,
      CurrentCaller
    >
  }
>()("gatehouse/domain/AuditLog") {
  static readonly layer = Layer.effect(
    AuditLog,
    Effect.gen(function* () {
      const repository = yield* AuditRepository
      const random = yield* SecureRandom.SecureRandom

      const recordAs =
        <R1>(who: Effect.Effect<string, never, R1>) =>
        <A, E, R>(change: Effect.Effect<A, E, R>, describe: (made: A) => Change) =>
          Effect.gen(function* () {
            const entry = { id: yield* random.ulid, at: yield* DateTime.now, actor: yield* who }
            const requestId = yield* RequestId
            return yield* repository.record(change, (made) => ({ ...entry, requestId, ...describe(made) }))
          })

      const list = Effect.fn("AuditLog.list")(function* (orgId: string, page: Page) {
        yield* requireOrg(orgId)
        const rows = yield* repository.list(orgId, page)
        const { items, nextCursor } = toPage(rows, page.limit, (entry) => entry.id)
        return { entries: items, nextCursor }
      })

      return AuditLog.of({ record: recordAs(actorOf), recordOfTenant: recordAs(actorOfTenant), list })
    }),
  )
}
