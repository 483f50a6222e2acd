import { Context, DateTime, Duration, Effect, Layer } from "effect"
import { InvalidRequest } from "../Errors.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { managedScope, orgNotFound, OrgScope, requireAdministrator } from "../Principal.ts"
import { countIntervals, type Every, fill, intervalsOf, type Measure, rankOf, startOf } from "./Activity.ts"
import { earliestTime } from "../Schemas.ts"
import { ActivityRepository } from "./ActivityRepository.ts"

const maxIntervals = 1_000
const defaultRange: Record<Every, Duration.Duration> = {
  minute: Duration.hours(1),
  hour: Duration.days(1),
  day: Duration.days(30),
}
/** How long hours of failures are kept. An older `since` counts whole days. */
export const maxFailureHours = Duration.hours(48)
export const maxFailureDays = Duration.days(31)

interface OverviewQuery {
  readonly from?: DateTime.Utc | undefined
  readonly to?: DateTime.Utc | undefined
  readonly every: Every
  readonly orgId?: string | undefined
}

interface RankingQuery {
  readonly since?: DateTime.Utc | undefined
  readonly limit: number
  readonly cursor?: string | undefined
}

/** What happened, for people: in the whole service, or in one org. */
export class Activities extends Context.Service<Activities>()("gatehouse/domain/Activities", {
  make: Effect.gen(function* () {
    const repository = yield* ActivityRepository
    const orgs = yield* OrgRepository

    const scopeOf = Effect.fnUntraced(function* (orgId: string | undefined) {
      const scope = yield* managedScope
      if (orgId === undefined) return scope
      if (scope._tag === "OneOrg" && scope.orgId !== orgId) return yield* orgNotFound()
      yield* orgs.find(orgId)
      return OrgScope.OneOrg({ orgId })
    })

    return {
      /** Orgs by what they did, for the administrator. */
      activeOrgs: Effect.fn("Activities.activeOrgs")(function* ({
        by,
        cursor,
        limit,
        since,
      }: RankingQuery & { readonly by: Measure }) {
        yield* requireAdministrator
        const after = rankOf(cursor)
        const { next, orgs } = yield* repository.activeOrgs({
          ...(yield* rangeOf(since)),
          by,
          limit,
          after: after && { count: after.count, orgId: after.id },
        })
        return {
          orgs: orgs.flatMap(({ name, ...org }) => (name === null ? [] : [{ ...org, name }])),
          nextCursor: next,
        }
      }),

      overview: Effect.fn("Activities.overview")(function* ({ every, orgId, ...range }: OverviewQuery) {
        const scope = yield* scopeOf(orgId)
        const now = yield* DateTime.now
        const to = range.to ?? now
        const from = range.from ?? DateTime.max(earliestTime, DateTime.subtractDuration(to, defaultRange[every]))
        const number = countIntervals(every, from.epochMilliseconds, to.epochMilliseconds)
        if (number === 0) return yield* new InvalidRequest({ error: "from must be before to." })
        if (number > maxIntervals) {
          return yield* new InvalidRequest({
            error: `The range has more than ${maxIntervals} intervals: use a longer every, or a shorter range.`,
          })
        }
        const intervals = intervalsOf(every, from.epochMilliseconds, to.epochMilliseconds)
        const [counted, state] = yield* Effect.all(
          [repository.counts(scope, every, DateTime.makeUnsafe(intervals[0]!), to), repository.queueState(scope, now)],
          { concurrency: 2 },
        )
        return {
          orgId: scope._tag === "OneOrg" ? scope.orgId : null,
          every,
          from,
          to,
          deliveries: fill("deliveries", intervals, counted),
          validations: fill("validations", intervals, counted),
          jobs: fill("jobs", intervals, counted),
          ...state,
        }
      }),

      /** Endpoints by their failed attempts, for the administrator. */
      failing: Effect.fn("Activities.failing")(function* ({ cursor, limit, since }: RankingQuery) {
        yield* requireAdministrator
        const after = rankOf(cursor)
        const { endpoints, next } = yield* repository.failing({
          ...(yield* rangeOf(since)),
          limit,
          after: after && { failures: after.count, endpointId: after.id },
        })
        return { endpoints: endpoints.filter((endpoint) => endpoint !== null), nextCursor: next }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** The intervals of a ranking, from the start of the one that `since` is in. */
const rangeOf = Effect.fnUntraced(function* (since: DateTime.Utc | undefined) {
  const now = yield* DateTime.now
  const from = since ?? DateTime.subtract(now, { hours: 24 })
  const age = now.epochMilliseconds - from.epochMilliseconds
  if (age > Duration.toMillis(Duration.days(30))) {
    return yield* new InvalidRequest({ error: "since must be at most 30 days ago." })
  }
  // Less than what is kept, because an interval begins before `since`.
  const every = age < Duration.toMillis(maxFailureHours) - 3_600_000 ? ("hour" as const) : ("day" as const)
  return { every, since: DateTime.makeUnsafe(startOf(every, from.epochMilliseconds)) }
})
