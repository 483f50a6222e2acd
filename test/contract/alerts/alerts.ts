import { assert } from "@effect/vitest"
import { Effect, Struct } from "effect"
import type { StoredAlert } from "#src/domain/alerts/Alert.ts"
import { AlertRepository, maxAlerts } from "#src/domain/alerts/Alerts.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import type { It } from "../support.ts"
import {
  assertPages,
  at,
  awkwardTexts,
  failureOf,
  insertOrg,
  newEntry,
  newId,
  notFound,
  noSuchOrg,
} from "../support.ts"

const noSuchAlert = notFound("There is no such alert.")

export const newAlert = (orgId: string | null, overrides: Partial<StoredAlert> = {}) =>
  Effect.map(newId, (alertId): StoredAlert => ({
    alertId,
    orgId,
    name: "Webhooks fail",
    condition: "endpoint_failing",
    threshold: 30,
    target: "slack",
    receiver: "hooks.slack.com",
    secret: "sealed",
    quietMinutes: 60,
    active: true,
    firingSince: null,
    lastToldAt: null,
    failures: 0,
    failingSince: null,
    lastError: null,
    createdAt: at(0),
    updatedAt: at(0),
    ...overrides,
  }))

export const insertAlert = Effect.fnUntraced(function* (orgId: string | null, overrides: Partial<StoredAlert> = {}) {
  const alert = yield* newAlert(orgId, overrides)
  yield* AlertRepository.use((alerts) =>
    alerts.insert(alert, newEntry({ action: "alert.create", target: alert.alertId })),
  )
  return alert
})

const find = (orgId: string | null, alertId: string) => AlertRepository.use((alerts) => alerts.find(orgId, alertId))

/** Nothing is in flight, and an owner may have all. */
export const alone = { inFlight: new Map<string, number>(), max: 1_000 }

/** Claims everything that is due; returns those of an org. Other tests have alerts, too. */
const claim = Effect.fnUntraced(function* (orgId: string, leaseSeconds = 120) {
  const claimed = yield* AlertRepository.use((alerts) => alerts.claim(1_000, leaseSeconds, alone))
  return claimed.filter((alert) => alert.orgId === orgId)
})

const told = {
  firingSince: at(1),
  lastToldAt: at(2),
  failures: 3,
  failingSince: at(3),
  lastError: "The target answered with status 500.",
}

/** The contract of every AlertRepository. */
export const alerts = (it: It) => {
  it.effect("alerts: are stored, listed, changed and deleted, for their owner alone", function* () {
    const repository = yield* AlertRepository
    const [{ orgId }, other] = [yield* insertOrg(), yield* insertOrg()]
    const [first, second] = [
      yield* insertAlert(orgId, { name: awkwardTexts[0]!, target: "email" }),
      yield* insertAlert(orgId, { condition: "endpoint_deactivated", threshold: null }),
    ]
    const ofService = yield* insertAlert(null)
    assert.deepStrictEqual(yield* find(orgId, first.alertId), first)
    assert.deepStrictEqual(yield* find(orgId, second.alertId), second)
    assert.deepStrictEqual(yield* find(null, ofService.alertId), ofService)
    yield* assertPages(
      (page) => repository.list(orgId, page),
      (one) => one.alertId,
      [first.alertId, second.alertId],
    )
    assert.deepStrictEqual((yield* repository.list(other.orgId, { limit: 10 })).items, [])

    const changed = { ...first, name: "n", quietMinutes: 0, updatedAt: at(9), ...told }
    const change = (owner: string | null) =>
      repository.change(owner, first.alertId, () => Effect.succeed(changed), newEntry({ action: "alert.update" }))
    for (const stranger of [other.orgId, null]) {
      assert.strictEqual(yield* failureOf(find(stranger, first.alertId)), noSuchAlert)
      assert.strictEqual(yield* failureOf(change(stranger)), noSuchAlert)
      assert.strictEqual(yield* failureOf(repository.remove(stranger, first.alertId, newEntry())), noSuchAlert)
    }
    assert.strictEqual(yield* failureOf(find(orgId, ofService.alertId)), noSuchAlert)
    assert.deepStrictEqual(yield* change(orgId), changed)
    assert.deepStrictEqual(yield* find(orgId, first.alertId), changed)
    const refused = repository.change(orgId, first.alertId, () => Effect.fail("no"), newEntry())
    assert.strictEqual((yield* Effect.exit(refused))._tag, "Failure")
    assert.deepStrictEqual(yield* find(orgId, first.alertId), changed)
    yield* repository.remove(orgId, first.alertId, newEntry({ action: "alert.delete" }))
    assert.strictEqual(yield* failureOf(find(orgId, first.alertId)), noSuchAlert)
    yield* repository.remove(null, ofService.alertId, newEntry())
    const { items } = yield* AuditRepository.use((audit) => audit.list(orgId, { limit: 10 }))
    assert.sameMembers(
      items.map(({ action }) => action).filter((action) => action.startsWith("alert.")),
      ["alert.create", "alert.create", "alert.update", "alert.delete"],
    )
  })

  it.effect("alerts: an org has 20 at most, and so has the administrator", function* () {
    const repository = yield* AlertRepository
    const { orgId } = yield* insertOrg()
    for (const owner of [orgId, null]) {
      const { items } = yield* repository.list(owner, { limit: 100 })
      const made = yield* Effect.replicateEffect(insertAlert(owner, { active: false }), maxAlerts - items.length)
      assert.include(yield* failureOf(insertAlert(owner)), "There are 20 alerts, the most that there can be.")
      yield* repository.remove(owner, made[0]!.alertId, newEntry())
      yield* insertAlert(owner, { active: false })
      assert.include(yield* failureOf(insertAlert(owner)), "There are 20 alerts")
      const { items: all } = yield* repository.list(owner, { limit: 100 })
      for (const { alertId } of all) yield* repository.remove(owner, alertId, newEntry())
    }
    assert.strictEqual(yield* failureOf(Effect.flatMap(newId, insertAlert)), noSuchOrg)
  })

  // The administrator has no row that a lock could be on.
  it.effect("alerts: there are 20 at most, however many are made at once", function* () {
    const repository = yield* AlertRepository
    const { orgId } = yield* insertOrg()
    for (const owner of [orgId, null]) {
      yield* Effect.forEach(Array.from({ length: 40 }), () => Effect.exit(insertAlert(owner, { active: false })), {
        concurrency: "unbounded",
      })
      const { items } = yield* repository.list(owner, { limit: 100 })
      assert.lengthOf(items, maxAlerts)
      for (const { alertId } of items) yield* repository.remove(owner, alertId, newEntry())
    }
  })

  it.effect("alerts: one claim has an alert that is due, until its lease ends", function* () {
    const { orgId } = yield* insertOrg()
    const [active] = [yield* insertAlert(orgId), yield* insertAlert(orgId, { active: false })]
    const first = yield* claim(orgId, 0)
    assert.deepStrictEqual(
      first.map((claimed) => Struct.omit(claimed, ["leaseUntil", "now"])),
      [active],
    )
    // The lease of the first claim has ended at once.
    const both = yield* Effect.all([claim(orgId), claim(orgId)], { concurrency: 2 })
    const [{ leaseUntil, now }, ...others] = both.flat() as [(typeof first)[number]]
    assert.deepStrictEqual(others, [])
    assert.closeTo(leaseUntil.epochMilliseconds - now.epochMilliseconds, 120_000, 1)
    assert.deepStrictEqual(yield* claim(orgId), [])
  })

  it.effect("alerts: owners are claimed in turn, and none has more than its share with those in flight", function* () {
    const repository = yield* AlertRepository
    // What other tests have is not due now.
    yield* repository.claim(1_000, 120, alone)
    const [busy, full, idle] = [yield* insertOrg(), yield* insertOrg(), yield* insertOrg()]
    for (const { orgId } of [busy, full, idle]) yield* Effect.replicateEffect(insertAlert(orgId), 4)
    const inFlight = new Map([
      [busy.orgId, 1],
      [full.orgId, 3],
    ])
    const take = Effect.fnUntraced(function* (limit: number) {
      const claimed = yield* repository.claim(limit, 120, { inFlight, max: 3 })
      return [busy, full, idle].map(({ orgId }) => claimed.filter((one) => one.orgId === orgId).length)
    })
    // The idle one has the first turn.
    assert.deepStrictEqual(yield* take(1), [0, 0, 1])
    assert.deepStrictEqual(yield* take(100), [2, 0, 3])
  })

  it.effect("alerts: a record needs the claim that it is of, and an alert that nobody has changed", function* () {
    const repository = yield* AlertRepository
    const { orgId } = yield* insertOrg()
    const alert = yield* insertAlert(orgId)
    const [late] = yield* claim(orgId, 0)
    const [claimed] = yield* claim(orgId)
    const next = { ...alert, ...told }
    assert.isFalse(yield* repository.record({ ...late!, ...told }))
    assert.deepStrictEqual(yield* find(orgId, alert.alertId), alert)
    assert.isTrue(yield* repository.record({ ...claimed!, ...told }))
    assert.deepStrictEqual(yield* find(orgId, alert.alertId), next)
    assert.isFalse(yield* repository.record(claimed!))
    assert.deepStrictEqual(yield* claim(orgId), [])

    // A change makes it due at once, and ends its claim.
    const change = (n: number) =>
      repository.change(orgId, alert.alertId, (one) => Effect.succeed({ ...one, name: `${n}` }), newEntry())
    yield* change(1)
    const [before] = yield* claim(orgId)
    yield* change(2)
    assert.isFalse(yield* repository.record({ ...before!, active: false }))
    const [last] = yield* claim(orgId, 60)
    const entry = newEntry({ action: "alert.off", target: alert.alertId })
    assert.isTrue(yield* repository.record({ ...last!, active: false }, entry))
    assert.deepStrictEqual(yield* find(orgId, alert.alertId), { ...next, name: "2", active: false })
    assert.deepStrictEqual(yield* claim(orgId), [])
    const { items } = yield* AuditRepository.use((audit) => audit.list(orgId, { limit: 10 }))
    assert.strictEqual(items[0]?.action, "alert.off")
  })

  it.effect("alerts: of a deleted org, none is there or claimed", function* () {
    const repository = yield* AlertRepository
    const { orgId } = yield* insertOrg()
    const { alertId } = yield* insertAlert(orgId)
    yield* OrgRepository.use((orgs) => orgs.remove(orgId, at(1), newEntry({ action: "org.delete", target: orgId })))
    assert.strictEqual(yield* failureOf(find(orgId, alertId)), noSuchAlert)
    assert.deepStrictEqual((yield* repository.list(orgId, { limit: 10 })).items, [])
    assert.strictEqual(yield* failureOf(repository.remove(orgId, alertId, newEntry())), noSuchAlert)
    assert.deepStrictEqual(yield* claim(orgId), [])
  })
}
