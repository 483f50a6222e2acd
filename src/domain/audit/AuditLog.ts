import { Context, DateTime, Effect, Layer, Option, Stream, Struct } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry, AuditFilter } from "./AuditEntry.ts"
import { actorOf, CurrentPrincipal, requireOrg } from "../Principal.ts"
import type { NotFound, Unavailable } from "../Errors.ts"
import { minuteRates } from "../minuteRates.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import type { Person } from "../Person.ts"
import { makeServiceEvent, type NewServiceEvent } from "../ServiceEvent.ts"

/** The id of the current request; `null` outside a request. */
export const RequestId = Context.Reference<string | null>("gatehouse/domain/AuditLog/RequestId", {
  defaultValue: () => null,
})

/** A change, without its actor and time. */
interface Change extends Pick<AuditEntry, "action" | "target" | "details"> {
  /** The event that the org's endpoints get about the change. */
  readonly event?: NewServiceEvent | undefined
}

/**
 * The entries of orgs, to read. Other repositories write them: each of their methods that changes something takes an
 * entry, and writes it in the transaction of the change, for the org of the changed resource.
 */
export class AuditRepository extends Context.Service<
  AuditRepository,
  {
    /** Entries of the org, newest first. Fails when there is no such org. */
    readonly list: (orgId: string, page: Page & AuditFilter) => Effect.Effect<Found<AuditEntry>, NotFound | Unavailable>
  }
>()("gatehouse/domain/AuditLog/AuditRepository") {}

/**
 * Changes that the keys, portal sessions and people of an org may make in a minute at one replica, so that nobody fills
 * the log. The administrator's changes are not limited, and none in open mode.
 */
const changesPerMinute = 600

interface Actor extends Pick<AuditEntry, "actor" | "person"> {
  /** Who made the link of a portal that makes the change. */
  readonly madeBy?: string
}

/** What an entry has of a person. */
const named = (person: Person | null) => person && Struct.pick(person, ["subject", "name", "email"])

const currentActor = CurrentPrincipal.useSync(({ principal }): Actor => {
  const actor = actorOf(principal)
  if (principal._tag === "Portal") return { actor, person: null, madeBy: principal.madeBy }
  return { actor, person: named("person" in principal ? principal.person : null) }
})

/** Entries that an export reads at once. */
const exportPageSize = 1_000

/** The audit log of orgs. */
export class AuditLog extends Context.Service<AuditLog>()("gatehouse/domain/AuditLog", {
  make: Effect.gen(function* () {
    const repository = yield* AuditRepository
    const random = yield* SecureRandom.SecureRandom

    const takeChange = minuteRates("changes")
    const limited = CurrentPrincipal.use(({ open, principal }) =>
      !open && "orgId" in principal && principal._tag !== "OrgAdministrator"
        ? takeChange(principal.orgId, changesPerMinute)
        : Effect.void,
    )

    const entryBy = <E, R>(who: Effect.Effect<Actor, E, R>) =>
      Effect.fnUntraced(function* ({ event, ...change }: Change) {
        const [id, at, { madeBy, ...actor }] = [yield* random.ulid, yield* DateTime.now, yield* who]
        const details = { ...change.details, ...(madeBy === undefined ? {} : { madeBy }) }
        const entry = { id, at, ...actor, ...change, details, requestId: yield* RequestId }
        if (event === undefined) return entry
        return { ...entry, event: yield* makeServiceEvent(random, event, at) }
      })

    return {
      /**
       * Makes the entry of a change by the current principal, for the repository that writes the change. Fails when the
       * keys, portal sessions and people of an org made too many changes in the last minute.
       */
      entry: entryBy(Effect.andThen(limited, currentActor)),

      /** Fails as `entry` does, for a change whose entry is made by `entryOf`. */
      takeChange: limited,

      /** Makes the entry of what somebody does who is no principal yet, or no more. */
      entryOf: (actor: string, person: Person | null, change: Change) =>
        entryBy(Effect.succeed({ actor, person: named(person) }))(change),

      /** Makes the entry of a change by the service itself. */
      entryOfService: entryBy(Effect.succeed({ actor: "service", person: null })),

      /** A page of the org's entries, newest first. */
      list: Effect.fn("AuditLog.list")(function* (orgId: string, page: Page & AuditFilter) {
        yield* requireOrg(orgId)
        const found = yield* repository.list(orgId, page)
        return { entries: found.items, nextCursor: nextCursor(found, (entry) => entry.id) }
      }),

      /** All of the org's entries, newest first, page by page. Ends with the credential of its reader. */
      export: Effect.fn("AuditLog.export")(function* (orgId: string, filter: AuditFilter) {
        yield* requireOrg(orgId)
        const { recheck = Effect.void } = yield* CurrentPrincipal
        const read = (cursor: string | undefined) =>
          repository.list(orgId, { ...filter, limit: exportPageSize, cursor })
        const next = (found: Found<AuditEntry>) =>
          Option.map(Option.fromNullOr(nextCursor(found, ({ id }) => id)), (id) => Effect.andThen(recheck, read(id)))
        // Before the response begins, so that a refusal has its status.
        const first = yield* read(undefined)
        return Stream.paginate(Effect.succeed(first) as Effect.Effect<Found<AuditEntry>, unknown>, (page) =>
          Effect.map(page, (found) => [found.items, next(found)] as const),
        )
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
