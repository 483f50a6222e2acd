import { Context, type DateTime, Duration, Effect, Layer } from "effect"
import { ActivityRepository } from "../activity/ActivityRepository.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { faultPlace, Unavailable } from "../Errors.ts"
import { ApiKeyRepository } from "../keys/ApiKeyRepository.ts"
import { DefaultLimits } from "../orgs/OrgLimits.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { noOrg } from "../Principal.ts"
import { workThrough } from "../workThrough.ts"
import type { StoredAlert } from "./Alert.ts"
import { AlertRepository, type ClaimedAlert, maxAlerts, scopeOf } from "./Alerts.ts"
import { conditions, type Finding } from "./conditions.ts"
import { makeTeller } from "./tellAlert.ts"

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
/** Other alerts that are told that one is off. */
const maxOthers = 5

/** How long an alert rests after a look: a minute, and up to 16 while its target fails. */
export const secondsToNextLook = ({ failures }: StoredAlert) => 60 * 2 ** Math.min(failures, 4)

const tooLong = new Unavailable({ error: `It took longer than ${lookSeconds} seconds.` })

const millisSince = (time: DateTime.Utc, now: DateTime.Utc) => now.epochMilliseconds - time.epochMilliseconds

/** What is told after a look, if anything. */
const toTell = (
  { firingSince, lastToldAt, quietMinutes, toldOf }: StoredAlert,
  found: Finding | null,
  now: DateTime.Utc,
): "firing" | "resolved" | null => {
  const isTold = firingSince !== null && lastToldAt !== null && millisSince(firingSince, lastToldAt) >= 0
  if (found === null) return isTold ? "resolved" : null
  if (lastToldAt !== null && millisSince(lastToldAt, now) < quietMinutes * 60_000) return null
  const isOld = isTold && found.latest !== undefined && toldOf !== undefined && millisSince(found.latest, toldOf) >= 0
  return isOld ? null : "firing"
}

/** A target that was not reached so often, for a day, is not told any more. */
const minFailures = 5
const maxFailingMillis = 86_400_000

/**
 * The alert after a look.
 *
 * @param told what was to be told
 * @param error why it was not
 */
const afterLook = <A extends StoredAlert>(
  alert: A,
  found: Finding | null,
  told: ReturnType<typeof toTell>,
  error: string | null,
  now: DateTime.Utc,
): A => {
  const firingSince = found === null ? null : (alert.firingSince ?? now)
  if (told === null && found !== null) return { ...alert, firingSince }
  const reached = { ...alert, firingSince, failures: 0, failingSince: null, lastError: null }
  if (error === null && told !== "firing") return reached
  if (error === null) return { ...reached, lastToldAt: now, ...(found?.latest && { toldOf: found.latest }) }
  const [failures, failingSince] = [alert.failures + 1, alert.failingSince ?? now]
  const isOff = failures >= minFailures && millisSince(failingSince, now) >= maxFailingMillis
  // While it could not be told that all is well, it is tried again.
  const since = isOff ? null : (firingSince ?? alert.firingSince)
  return { ...alert, firingSince: since, failures, failingSince, lastError: error, active: !isOff }
}

/** Looks at alerts in the background. */
export class AlertWatch extends Context.Service<AlertWatch>()("gatehouse/domain/alerts/AlertWatch", {
  make: Effect.gen(function* () {
    const repository = yield* AlertRepository
    const audit = yield* AuditLog
    const read = {
      endpoints: repository.endpoints,
      activity: yield* ActivityRepository,
      orgs: yield* OrgRepository,
      keys: yield* ApiKeyRepository,
      defaults: yield* DefaultLimits,
    }
    const tell = yield* makeTeller
    const interval = yield* AlertInterval

    const lookAt = Effect.fnUntraced(function* (alert: ClaimedAlert) {
      const { alertId, now, orgId } = alert
      const at = { orgId: orgId ?? "", scope: scopeOf(orgId), threshold: alert.threshold ?? 0, now }
      const found = yield* conditions[alert.condition].find({ ...read, ...at })
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
      /** Looks at all alerts that are due, tells what is wrong and what is well again. Returns how many there were. */
      run: workThrough({
        max: maxLooks,
        interval,
        ownerOf: ({ orgId }) => orgId ?? noOrg,
        take: (atMost, inFlight) => repository.claim(atMost, leaseSeconds, { inFlight, max: maxLooksOfOwner }),
        work: lookSafely,
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
