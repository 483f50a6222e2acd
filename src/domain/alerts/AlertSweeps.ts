import { Context, DateTime, Duration, Effect, FiberSet, Layer, Queue } from "effect"
import { ActivityRepository, maxBacklog } from "../activity/ActivityRepository.ts"
import { startOf } from "../activity/Activity.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { counted } from "../counted.ts"
import { faultPlace, type NotFound, Unavailable } from "../Errors.ts"
import { ApiKeyRepository } from "../keys/ApiKeyRepository.ts"
import { nextCursor } from "../Page.ts"
import { DefaultLimits, limitsOf, orgLimitNames } from "../orgs/OrgLimits.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { noOrg } from "../Principal.ts"
import { afterLook, type Finding, type StoredAlert, toTell } from "./Alert.ts"
import { AlertRepository, type ClaimedAlert, maxAlerts, scopeOf } from "./Alerts.ts"
import { makeTeller, named } from "./tellAlert.ts"

/** Alerts that a replica looks at at once, and those of one owner among them: a slow target delays its owner alone. */
const maxLooks = 50
const maxLooksOfOwner = 5
/** How often a replica looks for alerts that are due. */
export const AlertInterval = Context.Reference<Duration.Duration>("gatehouse/domain/alerts/AlertInterval", {
  defaultValue: () => Duration.seconds(20),
})
/** The deadline of a look with its message, and the time of a claim, which is longer. */
const lookSeconds = 90
const leaseSeconds = 120
/** What a message names by itself. */
const maxNamed = 5
/** Keys that one statement reads. */
const keysPerPage = 1_000
/** Other alerts that are told that one is off. */
const maxOthers = 5

const tooLong = new Unavailable({ error: `It took longer than ${lookSeconds} seconds.` })

/** A finding with its items, of which a message names the first; `null` without items. */
const finding = (what: string, items: ReadonlyArray<string>): Finding | null =>
  items.length === 0
    ? null
    : {
        summary: `${what}: ${items.length > maxNamed ? `more than ${maxNamed}` : items.length}`,
        items: items.slice(0, maxNamed),
      }

/** Makes a look: what is wrong of what an alert watches, or `null`. */
const makeLook = Effect.gen(function* () {
  const repository = yield* AlertRepository
  const activity = yield* ActivityRepository
  const orgs = yield* OrgRepository
  const keys = yield* ApiKeyRepository
  const defaults = yield* DefaultLimits

  /** Endpoints that have failed since before a time, or with `null` those that are deactivated. */
  const endpoints = Effect.fnUntraced(function* (alert: StoredAlert, what: string, before: DateTime.Utc | null) {
    const bad = yield* repository.endpoints(scopeOf(alert.orgId), before, maxNamed + 1)
    const items = bad.map(({ endpointId, orgId, since, url }) => {
      const ofOrg = alert.orgId === null ? `, org ${orgId}` : ""
      return `${named(new URL(url).host, endpointId)}${ofOrg}, since ${DateTime.formatIso(since)}`
    })
    const found = finding(`endpoints that ${what}`, items)
    // Of those that are deactivated, the last is the first. They are told again only when there is another.
    return found && before === null ? { ...found, latest: bad[0]!.since } : found
  })

  return Effect.fnUntraced(function* (
    alert: StoredAlert,
    now: DateTime.Utc,
  ): Effect.fn.Return<Finding | null, NotFound | Unavailable> {
    const [orgId, scope, threshold] = [alert.orgId ?? "", scopeOf(alert.orgId), alert.threshold ?? 0]
    switch (alert.condition) {
      case "endpoint_failing": {
        const before = DateTime.subtract(now, { minutes: threshold })
        return yield* endpoints(alert, `have failed for ${counted(threshold, "minute")}`, before)
      }
      case "endpoint_deactivated":
        return yield* endpoints(alert, "the service has deactivated", null)
      case "backlog": {
        const { backlog } = yield* activity.queueState(scope, now)
        const figure = `${backlog >= maxBacklog ? "at least " : ""}${backlog}`
        const summary = `deliveries that are due: ${figure} (told above ${threshold})`
        return backlog > threshold ? { summary, items: [] } : null
      }
      case "jobs_failed": {
        const since = DateTime.makeUnsafe(startOf("minute", now.epochMilliseconds - 3_600_000))
        const failed = (yield* activity.counts(scope, "minute", since, now))
          .filter(({ kind, outcome }) => kind === "jobs" && outcome === "failed")
          .reduce((sum, { count }) => sum + count, 0)
        const summary = `jobs that failed within an hour: ${failed} (told above ${threshold})`
        return failed > threshold ? { summary, items: [] } : null
      }
      case "limit_near": {
        const { overrides, used } = yield* orgs.findWithUsage(orgId)
        const limits = limitsOf(defaults, overrides)
        const near = orgLimitNames.filter((name) => used[name] > 0 && used[name] * 100 >= limits[name] * threshold)
        const items = near.map((name) => `${name}: ${used[name]} of ${limits[name]}`)
        return finding(`limits of which ${threshold} % are used`, items)
      }
      case "credits_low": {
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
      }
    }
  })
})

/** Looks at alerts in the background. */
export class AlertSweeps extends Context.Service<AlertSweeps>()("gatehouse/domain/alerts/AlertSweeps", {
  make: Effect.gen(function* () {
    const repository = yield* AlertRepository
    const audit = yield* AuditLog
    const [look, tell] = [yield* makeLook, yield* makeTeller]
    const interval = yield* AlertInterval

    const lookAt = Effect.fnUntraced(function* (alert: ClaimedAlert) {
      const { alertId, now, orgId } = alert
      const found = yield* look(alert, now)
      const told = toTell(alert, found, now)
      const error = told === null ? null : yield* tell(told, { ...alert, firingSince: alert.firingSince ?? now }, found)
      const next = afterLook(alert, found, told, error, now)
      if (next.active) return yield* repository.record(next)
      const { lastError, name, receiver } = next
      const details = { name, receiver, reason: `Its target failed for a day. ${lastError}` }
      const entry = yield* audit.entryOfService({ action: "alert.off", target: alertId, details })
      if (!(yield* repository.record(next, entry))) return false
      yield* Effect.logWarning(`The alert ${alertId} is off. ${details.reason}`)
      const { items } = yield* repository.list(orgId, { limit: maxAlerts })
      const others = items.filter(({ active }) => active).slice(0, maxOthers)
      yield* Effect.forEach(others, (other) => tell("off", next, null, other), { concurrency: maxOthers })
      return true
    })

    /** One alert that cannot be looked at stops no other. Its claim ends with its lease. */
    const lookSafely = (alert: ClaimedAlert) =>
      lookAt(alert).pipe(
        Effect.timeoutOrElse({ duration: `${lookSeconds} seconds`, orElse: () => Effect.fail(tooLong) }),
        Effect.catch(({ error }) => Effect.logWarning(`The alert ${alert.alertId} was not looked at: ${error}`)),
        Effect.catchDefect((fault) =>
          Effect.logError(`The alert ${alert.alertId} was not looked at`, faultPlace(fault)),
        ),
      )

    return {
      /**
       * Looks at all alerts that are due, tells what is wrong and what is well again. Returns how many it looked at.
       * Claims again whenever a look ends, and after the interval: what becomes due waits for no slow target.
       */
      run: Effect.gen(function* () {
        const looks = yield* FiberSet.make()
        const ended = yield* Queue.sliding<void>(1)
        const inFlight = new Map<string, number>()
        const count = (alert: ClaimedAlert, by: 1 | -1) => {
          const owner = alert.orgId ?? noOrg
          const now = (inFlight.get(owner) ?? 0) + by
          if (now === 0) inFlight.delete(owner)
          else inFlight.set(owner, now)
        }
        const begin = Effect.fnUntraced(function* (alert: ClaimedAlert) {
          count(alert, 1)
          const end = Effect.andThen(
            Effect.sync(() => count(alert, -1)),
            Queue.offer(ended, undefined),
          )
          yield* FiberSet.run(looks, Effect.ensuring(lookSafely(alert), end))
        })
        let total = 0
        while (true) {
          const free = maxLooks - [...inFlight.values()].reduce((sum, n) => sum + n, 0)
          const claimed =
            free === 0
              ? []
              : yield* repository
                  .claim(free, leaseSeconds, { inFlight, max: maxLooksOfOwner })
                  .pipe(Effect.tapError(() => FiberSet.awaitEmpty(looks)))
          yield* Effect.forEach(claimed, begin, { discard: true })
          total += claimed.length
          if (claimed.length > 0) continue
          if (inFlight.size === 0) return total
          yield* Effect.race(Queue.take(ended), Effect.sleep(interval))
        }
      }).pipe(Effect.scoped),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
