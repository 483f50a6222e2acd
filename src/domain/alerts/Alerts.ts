import { Context, DateTime, Effect, Layer, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { Cipher } from "../Cipher.ts"
import { InvalidRequest, LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import { minuteRates } from "../minuteRates.ts"
import { OrgRepository } from "../orgs/Orgs.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import { noOrg, OrgScope, requireAdministrator, requireOrg } from "../Principal.ts"
import { ReceiverUrlRules } from "../callableUrls.ts"
import { signingSecretBytes, signingSecretOf } from "../webhooks/Signatures.ts"
import {
  conditionFault,
  mailOf,
  type CreateAlert,
  defaultQuietMinutes,
  shown,
  type StoredAlert,
  type StoredTarget,
  targetFault,
  type UpdateAlert,
} from "./Alert.ts"
import type { Look } from "./conditions.ts"
import { makeTeller } from "./tellAlert.ts"

/** An alert that is due for a look. */
export interface ClaimedAlert extends StoredAlert {
  /** The end of its lease, in full milliseconds. */
  readonly leaseUntil: DateTime.Utc
  /** The time by the clock of the database. */
  readonly now: DateTime.Utc
}

/** Alerts of an org, and of the administrator. */
export const maxAlerts = 20
/** Tests of an owner's alerts in a minute. */
const testsPerMinute = 10

export const alertNotFound = () => new NotFound({ error: "There is no such alert." })
export const tooManyAlerts = () =>
  new LimitReached({
    error: `There are ${maxAlerts} alerts, the most that there can be. Delete one that nobody reads.`,
  })

/** Alerts of orgs, and of the administrator, whose org is `null`. */
export class AlertRepository extends Context.Service<
  AlertRepository,
  {
    /** Fails when there is no such org, or it has too many alerts. */
    readonly insert: (
      alert: StoredAlert,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | LimitReached | Unavailable>
    /** The alerts of an owner, oldest first. */
    readonly list: (orgId: string | null, page: Page) => Effect.Effect<Found<StoredAlert>, Unavailable>
    readonly find: (orgId: string | null, alertId: string) => Effect.Effect<StoredAlert, NotFound | Unavailable>
    /** Replaces an alert, which nobody else changes meanwhile, and ends its claim: the next look is at once. */
    readonly change: <E>(
      orgId: string | null,
      alertId: string,
      change: (before: StoredAlert) => Effect.Effect<StoredAlert, E>,
      entry: AuditEntry,
    ) => Effect.Effect<StoredAlert, E | NotFound | LimitReached | Unavailable>
    readonly remove: (
      orgId: string | null,
      alertId: string,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | Unavailable>
    /**
     * Claims active alerts that are due, for so many seconds: of each owner in turn, and no more than `max` with those
     * that are in flight here.
     */
    readonly claim: (
      limit: number,
      leaseSeconds: number,
      ofOwner: { readonly inFlight: ReadonlyMap<string, number>; readonly max: number },
    ) => Effect.Effect<ReadonlyArray<ClaimedAlert>, Unavailable>
    /**
     * Records the state after a look, and when the next one is due. Returns `false` and changes nothing when the claim
     * has ended: its lease, or by a change.
     */
    readonly record: (alert: ClaimedAlert, entry?: AuditEntry) => Effect.Effect<boolean, Unavailable>
    readonly endpoints: Look["endpoints"]
  }
>()("gatehouse/domain/alerts/AlertRepository") {}

/** Whose alerts a principal may read and change: an org's, or with `null` the administrator's. */
const requireOwner = (orgId: string | null) => (orgId === null ? requireAdministrator : requireOrg(orgId))

/** The alerts of an org, or of the administrator (`orgId` null), as people manage them. */
export class Alerts extends Context.Service<Alerts>()("gatehouse/domain/alerts/Alerts", {
  make: Effect.gen(function* () {
    const repository = yield* AlertRepository
    const orgs = yield* OrgRepository
    const cipher = yield* Cipher
    const random = yield* SecureRandom.SecureRandom
    const rules = yield* ReceiverUrlRules
    const audit = yield* AuditLog
    const tell = yield* makeTeller
    const takeTest = minuteRates("tests of alerts")

    const check = (fault: string | undefined) =>
      fault === undefined ? Effect.void : Effect.fail(new InvalidRequest({ error: fault }))

    const create = Effect.fn("Alerts.create")(function* (orgId: string | null, input: typeof CreateAlert.Type) {
      yield* requireOwner(orgId)
      const { condition, name, quietMinutes = defaultQuietMinutes, target, threshold = null, url } = input
      yield* check(conditionFault({ condition, orgId, threshold }) ?? targetFault(target, url, rules))
      const [alertId, now] = [yield* random.ulid, yield* DateTime.now]
      const made =
        target === "webhook" ? { signingSecret: signingSecretOf(yield* random.randomBytes(signingSecretBytes)) } : {}
      const stored: StoredTarget = { url, ...made }
      const secret = yield* cipher.encrypt(Redacted.make(JSON.stringify(stored)), alertId)
      const receiver = target === "email" ? mailOf(url).to.join(", ") : new URL(url).host
      const settings = { name, condition, threshold, target, receiver, quietMinutes }
      const alert: StoredAlert = {
        alertId,
        orgId,
        ...settings,
        active: true,
        secret,
        failures: 0,
        failingSince: null,
        lastError: null,
        firingSince: null,
        lastToldAt: null,
        createdAt: now,
        updatedAt: now,
      }
      const entry = yield* audit.entry({ action: "alert.create", target: alertId, details: settings })
      yield* repository.insert(alert, entry)
      return { ...shown(alert), ...made }
    })

    const list = Effect.fn("Alerts.list")(function* (orgId: string | null, page: Page) {
      yield* requireOwner(orgId)
      const found = yield* repository.list(orgId, page)
      if (found.items.length === 0 && orgId !== null) yield* orgs.find(orgId)
      return { alerts: found.items.map(shown), nextCursor: nextCursor(found, (alert) => alert.alertId) }
    })

    const update = Effect.fn("Alerts.update")(function* (
      orgId: string | null,
      alertId: string,
      settings: typeof UpdateAlert.Type,
    ) {
      yield* requireOwner(orgId)
      const now = yield* DateTime.now
      const entry = yield* audit.entry({ action: "alert.update", target: alertId, details: settings })
      const change = Effect.fnUntraced(function* (before: StoredAlert) {
        const next = { ...before, ...settings, updatedAt: now }
        yield* check(conditionFault(next))
        if (settings.active === undefined) return next
        const firingSince = settings.active ? next.firingSince : null
        return { ...next, firingSince, failures: 0, failingSince: null, lastError: null }
      })
      return shown(yield* repository.change(orgId, alertId, change, entry))
    })

    const remove = Effect.fn("Alerts.remove")(function* (orgId: string | null, alertId: string) {
      yield* requireOwner(orgId)
      const entry = yield* audit.entry({ action: "alert.delete", target: alertId, details: {} })
      yield* repository.remove(orgId, alertId, entry)
    })

    const test = Effect.fn("Alerts.test")(function* (orgId: string | null, alertId: string) {
      yield* requireOwner(orgId)
      yield* takeTest(orgId ?? noOrg, testsPerMinute)
      const alert = yield* repository.find(orgId, alertId)
      return { error: yield* tell("test", alert, null) }
    })

    return { create, list, update, remove, test }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** What an alert of an owner watches. */
export const scopeOf = (orgId: string | null): OrgScope =>
  orgId === null ? OrgScope.EveryOrg() : OrgScope.OneOrg({ orgId })
