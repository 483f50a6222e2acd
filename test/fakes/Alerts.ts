import { Context, DateTime, Effect, Layer, Struct } from "effect"
import { type StoredAlert } from "#src/domain/alerts/Alert.ts"
import { secondsToNextLook } from "#src/domain/alerts/AlertWatch.ts"
import { alertNotFound, AlertRepository, maxAlerts, tooManyAlerts } from "#src/domain/alerts/Alerts.ts"
import type { BadEndpoint } from "#src/domain/alerts/conditions.ts"
import { noOrg, orgNotFound } from "#src/domain/Principal.ts"
import { orgOf } from "#src/infrastructure/database/fragments.ts"
import { keepEntry, pageOf, World } from "./World.ts"

/** What alerts look at, and what the fake repository has of them. */
export class AlertWorld extends Context.Service<
  AlertWorld,
  {
    /** Endpoints that fail, and those that the service has deactivated. */
    readonly failing: Array<BadEndpoint>
    readonly deactivated: Array<BadEndpoint>
    readonly alerts: Map<string, { alert: StoredAlert; dueAt: number }>
    /** Whether the next record is lost, as if the process had ended before it. */
    crashes: boolean
  }
>()("gatehouse/test/AlertWorld") {
  static readonly layer = Layer.sync(AlertWorld, () => ({
    failing: [],
    deactivated: [],
    alerts: new Map(),
    crashes: false,
  }))
}

/** Alerts in memory. */
export const layer = Layer.effect(
  AlertRepository,
  Effect.gen(function* () {
    const world = yield* World
    const own = yield* AlertWorld
    const { alerts } = own
    const hasOwner = ({ orgId }: StoredAlert) => orgId === null || world.orgs.has(orgId)
    const ofOwner = (orgId: string | null) =>
      [...alerts.values()].map(({ alert }) => alert).filter((alert) => alert.orgId === orgId && hasOwner(alert))

    const find = (orgId: string | null, alertId: string) =>
      Effect.suspend(() => {
        const found = alerts.get(alertId)
        return found === undefined || found.alert.orgId !== orgId || !hasOwner(found.alert)
          ? Effect.fail(alertNotFound())
          : Effect.succeed(found)
      })
    const millis = Effect.map(DateTime.now, (now) => now.epochMilliseconds)

    return AlertRepository.of({
      insert: Effect.fnUntraced(function* (alert, entry) {
        const { alertId, orgId } = alert
        if (orgId !== null && !world.orgs.has(orgId)) return yield* orgNotFound()
        if (ofOwner(orgId).length >= maxAlerts) return yield* tooManyAlerts()
        keepEntry(world, orgId ?? noOrg, entry)
        alerts.set(alertId, { alert, dueAt: yield* millis })
      }),
      list: (orgId, page) => Effect.sync(() => pageOf(ofOwner(orgId), ({ alertId }) => alertId, page)),
      find: (orgId, alertId) => Effect.map(find(orgId, alertId), ({ alert }) => alert),
      change: Effect.fnUntraced(function* (orgId, alertId, change, entry) {
        const found = yield* find(orgId, alertId)
        const alert = yield* change(found.alert)
        keepEntry(world, orgId ?? noOrg, entry)
        alerts.set(alertId, { alert, dueAt: yield* millis })
        return alert
      }),
      remove: Effect.fnUntraced(function* (orgId, alertId, entry) {
        yield* find(orgId, alertId)
        keepEntry(world, orgId ?? noOrg, entry)
        alerts.delete(alertId)
      }),
      claim: Effect.fnUntraced(function* (limit, leaseSeconds, { inFlight, max }) {
        const now = yield* DateTime.now
        const turns = new Map(inFlight)
        const due = [...alerts.values()]
          .filter(({ alert, dueAt }) => alert.active && dueAt <= now.epochMilliseconds && hasOwner(alert))
          .sort((a, b) => a.dueAt - b.dueAt)
          .map((one) => {
            const owner = one.alert.orgId ?? noOrg
            const turn = (turns.get(owner) ?? 0) + 1
            turns.set(owner, turn)
            return { one, turn }
          })
          .filter(({ turn }) => turn <= max)
          .toSorted((a, b) => a.turn - b.turn)
          .slice(0, limit)
          .map(({ one }) => one)
        for (const one of due) one.dueAt = now.epochMilliseconds + leaseSeconds * 1000
        return due.map(({ alert, dueAt }) => ({ ...alert, leaseUntil: DateTime.makeUnsafe(dueAt), now }))
      }),
      record: Effect.fnUntraced(function* (claimed, entry) {
        const alert = Struct.omit(claimed, ["leaseUntil", "now"])
        const found = alerts.get(alert.alertId)
        if (own.crashes) {
          own.crashes = false
          return yield* Effect.die(new Error("The process has ended"))
        }
        if (found?.dueAt !== claimed.leaseUntil.epochMilliseconds) return false
        if (entry !== undefined) keepEntry(world, alert.orgId ?? noOrg, entry)
        alerts.set(alert.alertId, { alert, dueAt: (yield* millis) + 1_000 * secondsToNextLook(alert) })
        return true
      }),
      endpoints: (scope, failingBefore, limit) =>
        Effect.sync(() => {
          const ofScope = ({ orgId }: BadEndpoint) => (orgOf(scope) ?? orgId) === orgId
          const sinceOf = ({ since }: BadEndpoint) => since.epochMilliseconds
          const found =
            failingBefore === null
              ? own.deactivated.filter(ofScope).sort((a, b) => sinceOf(b) - sinceOf(a))
              : own.failing
                  .filter((one) => ofScope(one) && sinceOf(one) <= failingBefore.epochMilliseconds)
                  .sort((a, b) => sinceOf(a) - sinceOf(b))
          return found.slice(0, limit)
        }),
    })
  }),
).pipe(Layer.provideMerge(AlertWorld.layer))
