import { DateTime, Effect } from "effect"
import { startOf } from "../activity/Activity.ts"
import { type ActivityRepository, maxBacklog } from "../activity/ActivityRepository.ts"
import { counted } from "../plural.ts"
import type { NotFound, Unavailable } from "../Errors.ts"
import type { ApiKeyRepository } from "../keys/ApiKeyRepository.ts"
import { type DefaultLimits, limitsOf, orgLimitNames } from "../orgs/OrgLimits.ts"
import type { OrgRepository } from "../orgs/Orgs.ts"
import { nextCursor } from "../Page.ts"
import type { OrgScope } from "../Principal.ts"
import { controlCharacters, cut } from "../Schemas.ts"

/** What was found wrong. */
export interface Finding {
  /** The end of a sentence, with the figure. */
  readonly summary: string
  /** The first of what it is about, each in a line. */
  readonly items: ReadonlyArray<string>
  /** What happened last, for a finding that is told again only when more has happened. */
  readonly latest?: DateTime.Utc
}

/** An endpoint that fails, or that the service has deactivated. */
export interface BadEndpoint {
  readonly endpointId: string
  readonly orgId: string
  readonly url: string
  /** Since when it fails or is inactive. */
  readonly since: DateTime.Utc
}

/** What is read by looks: of an alert's org in `scope`, or of every org. */
export interface Look {
  /** "" for every org. */
  readonly orgId: string
  readonly scope: OrgScope
  readonly threshold: number
  readonly now: DateTime.Utc
  /**
   * Endpoints that have failed since before a time, the longest first; with `null` those that the service has
   * deactivated, the last first.
   */
  readonly endpoints: (
    scope: OrgScope,
    failingBefore: DateTime.Utc | null,
    limit: number,
  ) => Effect.Effect<ReadonlyArray<BadEndpoint>, Unavailable>
  readonly activity: ActivityRepository["Service"]
  readonly orgs: OrgRepository["Service"]
  readonly keys: ApiKeyRepository["Service"]
  readonly defaults: typeof DefaultLimits.Service
}

interface Condition {
  /** When it holds, in a sentence for the API's document. */
  readonly holds: string
  /** The range of the threshold; `null` without one. */
  readonly range: readonly [min: number, max: number] | null
  /** Whether only an org can have it. */
  readonly isOfOrg?: true
  /** Looks whether it holds: what is wrong, or `null`. */
  readonly find: (look: Look) => Effect.Effect<Finding | null, NotFound | Unavailable>
}

/** What a message names by itself. */
const maxNamed = 5
/** Keys that one statement reads. */
const keysPerPage = 1_000

/** What of a name is shown: a tenant's words in one line, without what turns the direction of the rest. */
const maxNameLength = 80
export const short = (text: string) => {
  const line = text.replace(controlCharacters, " ").replace(/\s+/g, " ").trim()
  return line.length > maxNameLength ? `${cut(line, maxNameLength)}…` : line
}
/** How an item names something of a tenant, with its id. */
const named = (name: string, id: string) => `${short(name)} (${id})`

/** A finding with the first of its items, which a message names; `null` where there is none. */
const finding = (what: string, items: ReadonlyArray<string>): Finding | null =>
  items.length === 0
    ? null
    : {
        summary: `${what}: ${items.length > maxNamed ? `more than ${maxNamed}` : items.length}`,
        items: items.slice(0, maxNamed),
      }

/** The finding that a figure is above the threshold. */
const above = (what: string, figure: number, threshold: number, least = ""): Finding | null =>
  figure > threshold ? { summary: `${what}: ${least}${figure} (threshold ${threshold})`, items: [] } : null

const findEndpoints = Effect.fnUntraced(function* (look: Look, what: string, before: DateTime.Utc | null) {
  const bad = yield* look.endpoints(look.scope, before, maxNamed + 1)
  const items = bad.map(({ endpointId, orgId, since, url }) => {
    const ofOrg = look.orgId === "" ? `, org ${orgId}` : ""
    return `${named(new URL(url).host, endpointId)}${ofOrg}, since ${DateTime.formatIso(since)}`
  })
  const found = finding(`endpoints that ${what}`, items)
  // Of those that are deactivated, the last is the first. They are told again only when there is another.
  return found && before === null ? { ...found, latest: bad[0]!.since } : found
})

/** What an alert can watch. */
export const conditions = {
  endpoint_failing: {
    holds: "an endpoint has failed for so many minutes",
    range: [1, 7_200],
    find: (look) =>
      findEndpoints(
        look,
        `have failed for ${counted(look.threshold, "minute")}`,
        DateTime.subtract(look.now, { minutes: look.threshold }),
      ),
  },
  endpoint_deactivated: {
    holds: "the service has deactivated an endpoint (no threshold)",
    range: null,
    find: (look) => findEndpoints(look, "the service has deactivated", null),
  },
  backlog: {
    holds: "more deliveries are due",
    range: [1, maxBacklog - 1],
    find: ({ activity, now, scope, threshold }) =>
      Effect.map(activity.queueState(scope, now), ({ backlog }) =>
        above("deliveries that are due", backlog, threshold, backlog >= maxBacklog ? "at least " : ""),
      ),
  },
  jobs_failed: {
    holds: "more jobs failed in the last hour",
    range: [0, 1_000_000],
    find: Effect.fnUntraced(function* ({ activity, now, scope, threshold }) {
      const since = DateTime.makeUnsafe(startOf("minute", now.epochMilliseconds - 3_600_000))
      const failed = (yield* activity.counts(scope, "minute", since, now))
        .filter(({ kind, outcome }) => kind === "jobs" && outcome === "failed")
        .reduce((sum, { count }) => sum + count, 0)
      return above("jobs that failed within an hour", failed, threshold)
    }),
  },
  limit_near: {
    holds: "so many percent of a limit of the org are used",
    range: [1, 100],
    isOfOrg: true,
    find: Effect.fnUntraced(function* ({ defaults, orgId, orgs, threshold }) {
      const { overrides, used } = yield* orgs.findWithUsage(orgId)
      const limits = limitsOf(defaults, overrides)
      const near = orgLimitNames.filter((name) => used[name] > 0 && used[name] * 100 >= limits[name] * threshold)
      const items = near.map((name) => `${name}: ${used[name]} of ${limits[name]}`)
      return finding(`limits of which ${threshold} % are used`, items)
    }),
  },
  credits_low: {
    holds: "a key has fewer credits",
    range: [1, 10 ** 12],
    isOfOrg: true,
    find: Effect.fnUntraced(function* ({ keys, orgId, threshold }) {
      const items: Array<string> = []
      let cursor: string | undefined
      do {
        const page: Effect.Success<ReturnType<typeof keys.list>> = yield* keys.list(
          orgId,
          { limit: keysPerPage, cursor },
          { state: "valid" },
        )
        for (const { credits, id, name } of page.items) {
          if (credits !== null && credits.remaining < threshold) {
            items.push(`${named(name, id)}: ${credits.remaining} credits left`)
          }
        }
        cursor = nextCursor(page, ({ id }) => id) ?? page.seenTo
      } while (cursor !== undefined && items.length <= maxNamed)
      return finding(`keys that have less than ${threshold} credits`, items)
    }),
  },
} as const satisfies Readonly<Record<string, Condition>>
