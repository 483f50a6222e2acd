import { Context, type Duration, Effect, Stream } from "effect"
import { HttpApiBuilder, HttpApiSchema } from "effect/http-api"
import {
  CurrentPrincipal,
  managedScope,
  orgNotFound,
  OrgScope,
  portalForbidden,
  type Principal,
  tenantOf,
} from "../../domain/Principal.ts"
import { Activities } from "../../domain/activity/Activities.ts"
import { type LiveEvent, LiveFeed } from "../../domain/activity/LiveFeed.ts"
import { ServiceStates } from "../../domain/activity/ServiceStates.ts"
import { OrgRepository } from "../../domain/orgs/Orgs.ts"
import { Api } from "../api/Api.ts"

export const layer = HttpApiBuilder.group(Api, "activity", (handlers) =>
  Effect.gen(function* () {
    const activities = yield* Activities
    const states = yield* ServiceStates
    return handlers.handleAll({
      overview: ({ query }) => activities.overview(query),
      activeOrgs: ({ query }) => activities.activeOrgs(query),
      failing: ({ query }) => activities.failing(query),
      replicas: () => states.read,
    })
  }),
)

export const live = HttpApiBuilder.group(Api, "live", (handlers) =>
  Effect.succeed(
    handlers.handleAll({ follow: ({ headers, query }) => liveEvents(query.orgId, headers["last-event-id"]) }),
  ),
)

/** How often a stream sends a ping. So often it also checks that its reader may still read, when nothing changes. */
export const PingInterval = Context.Reference<Duration.Input>("gatehouse/http/Activity/PingInterval", {
  defaultValue: () => "15 seconds",
})

/** How long a check of the reader holds for the events that follow it. */
const checkedFor = "1 second"

const webhookTopics: ReadonlySet<string> = new Set(["delivery", "endpoint"])
const allTopics: ReadonlySet<string> = new Set([...webhookTopics, "job", "deployment"])
const topicsOf = ({ _tag }: Principal) => (_tag === "Portal" ? webhookTopics : allTopics)

/** The org that is asked for, or everything that the principal may read. */
const scopeOf = Effect.fnUntraced(function* (orgId: string | undefined) {
  const { principal } = yield* CurrentPrincipal
  if (principal._tag === "Portal" && !principal.may.webhooks) return yield* portalForbidden()
  const own = tenantOf(principal)
  const scope = own === undefined ? yield* managedScope : OrgScope.OneOrg({ orgId: own })
  if (orgId === undefined) return scope
  if (scope._tag === "OneOrg" && scope.orgId !== orgId) return yield* orgNotFound()
  yield* (yield* OrgRepository).find(orgId)
  return OrgScope.OneOrg({ orgId })
})

const sent = ({ data, id, orgId, topic }: LiveEvent) => ({
  ...(id === "" ? {} : { id }),
  event: topic,
  data: JSON.stringify(topic === "reset" ? {} : { orgId, ...data }),
})

/** The stream of changes that the principal may read. It ends with the credential of its reader. */
const liveEvents = Effect.fnUntraced(function* (orgId: string | undefined, after: string | undefined) {
  const feed = yield* LiveFeed
  const { principal, recheck = Effect.void } = yield* CurrentPrincipal
  const scope = yield* scopeOf(orgId)
  const events = yield* feed.follow(scope, topicsOf(principal), after)
  const pings = Stream.map(Stream.tick(yield* PingInterval), () => ({ event: "ping", data: "{}" }))
  const mayRead = yield* Effect.cachedWithTTL(Effect.isSuccess(recheck), checkedFor)
  return HttpApiSchema.withHeaders({
    body: Stream.merge(Stream.map(events, sent), pings, { haltStrategy: "either" }).pipe(
      Stream.takeWhileEffect(() => mayRead),
    ),
    headers: { "x-accel-buffering": "no" as const },
  })
})
