import { assert } from "@effect/vitest"
import { DateTime, Duration, Effect } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { type Records, RetentionRepository } from "#src/domain/Retention.ts"
import type { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import type { DeliveryLogRepository } from "#src/domain/webhooks/DeliveryLog.ts"
import type { DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import type { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import { at, failureOf, insertOrg, newEntry, newId } from "../support.ts"
import {
  attempt,
  cancelJob,
  claim,
  completed,
  deliveriesOf,
  findDelivery,
  findJob,
  finish,
  insertEndpoint,
  insertJob,
  jobsOf,
  noSuchDelivery,
  noSuchJob,
  plus,
  record,
  retry,
  statesOf,
  updateEndpoint,
} from "../webhooks/webhookSupport.ts"
import type { TestsWith } from "../../support/it.ts"

let day = 0
/**
 * A time so many days after that of the last call, and before all other tests: ranges are created in their order. Who
 * calls it hundreds of times takes few days, so that the time stays in the past.
 */
export const nextTime = (days = 40) => DateTime.makeUnsafe(Date.UTC(1975, 0, 1, 0, 0, 0) + (day += days) * 86_400_000)

const range = Duration.hours(1)
export const prepare = (now: DateTime.Utc, records: Records = "webhooks") =>
  RetentionRepository.use((retention) => retention.prepare(records, now, range))

/** Removes what is in ranges that ended before `before`, and what has stayed behind earlier ones. */
export const removeOld = Effect.fnUntraced(function* (before: DateTime.Utc, records: Records = "webhooks") {
  const { removeLeft, removeOldest } = yield* RetentionRepository
  const next = removeOldest(records, DateTime.addDuration(before, range), range)
  yield* Effect.repeat(next, { while: (removed) => removed !== null })
  if (records === "webhooks") yield* Effect.repeat(removeLeft(2), { while: (removed) => removed === 2 })
})

/** An id of this time. */
export const idOf = (time: DateTime.Utc) =>
  Effect.map(newId, (id) => `${idAt(DateTime.toEpochMillis(time))}${id.slice(10)}`)

/** Publishes an event whose id has its time; returns the id, or that of the earlier event with the key. */
export const publishAt = Effect.fnUntraced(function* (
  orgId: string,
  time: DateTime.Utc,
  key: string | null = null,
  createdAt = time,
  channels: ReadonlyArray<string> = [],
) {
  const event = { id: yield* idOf(time), type: "a.b", body: "{}", idempotencyKey: key, channels, createdAt }
  return (yield* EventRepository.use((events) => events.publish(orgId, [event]))).ids[0]!
})

/** An org with endpoints and events of these times. */
export const insertEvents = Effect.fnUntraced(function* (events: ReadonlyArray<DateTime.Utc>, endpoints = 1) {
  const { orgId } = yield* insertOrg()
  for (let n = 0; n < endpoints; n++) yield* insertEndpoint(orgId)
  return { orgId, events: yield* Effect.forEach(events, (time) => publishAt(orgId, time)) }
})

const eventsOf = (orgId: string) =>
  EventRepository.use((events) =>
    Effect.map(events.list(orgId, undefined, { limit: 100 }), (all) => all.map(({ event_id }) => event_id)),
  )

/** Claims everything that is due and ends each delivery with the decision at its position, oldest first. */
const settleAll = Effect.fnUntraced(function* (
  now: DateTime.Utc,
  decisions: ReadonlyArray<"Delivered" | "Exhausted" | undefined>,
) {
  const claimed = (yield* claim(now)).toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
  const records = claimed.flatMap((one, n) => (decisions[n] === undefined ? [] : [attempt(one, decisions[n], now)]))
  yield* record(records, now)
  return claimed
})

type It = TestsWith<
  | AuditRepository
  | DeliveryLogRepository
  | DeliveryQueue
  | EventRepository
  | JobRepository
  | OrgRepository
  | RetentionRepository
  | WebhookEndpointRepository
>

/** The contract of every RetentionRepository. */
export const retention = (it: It) => {
  it.effect("retention: a range is removed with its deliveries and attempts, and newer ones stay", function* () {
    const now = nextTime()
    const [hour, day] = [plus(now, 3_600), plus(now, 86_400)]
    yield* prepare(now)
    const { events, orgId } = yield* insertEvents([now, plus(now, 5), plus(now, 3_700)])
    const [a, b, c] = yield* settleAll(day, ["Delivered", "Exhausted", "Delivered"])
    const kept = yield* findDelivery(orgId, c!.deliveryId)
    // The range has not ended.
    yield* removeOld(plus(now, 3_599))
    assert.deepStrictEqual(yield* eventsOf(orgId), events.toReversed())
    yield* removeOld(hour)
    assert.deepStrictEqual(yield* eventsOf(orgId), [events[2]])
    for (const gone of [a, b]) {
      assert.strictEqual(yield* failureOf(findDelivery(orgId, gone!.deliveryId)), noSuchDelivery)
      assert.strictEqual(yield* failureOf(retry(orgId, gone!.deliveryId, day)), noSuchDelivery)
    }
    assert.deepStrictEqual(yield* findDelivery(orgId, c!.deliveryId), kept)
    assert.strictEqual(kept.attempt_log.length, 1)
    assert.deepStrictEqual(yield* deliveriesOf(orgId, { event_id: events[2] }), yield* deliveriesOf(orgId))
    assert.deepStrictEqual(yield* deliveriesOf(orgId, { event_id: events[0] }), [])
  })

  it.effect(
    "retention: an event with a pending delivery stays with all its deliveries and attempts until it ends",
    function* () {
      const now = nextTime()
      const later = plus(now, 86_400)
      yield* prepare(now)
      const { events, orgId } = yield* insertEvents([now, now], 2)
      const claimed = yield* claim(now)
      // One delivery of the second event has failed once.
      const second = claimed.filter(({ eventId }) => eventId === events[1])
      for (const one of claimed) {
        yield* record([attempt(one, one === second[0] ? { retryAt: later } : "Delivered", now)], now)
      }
      yield* removeOld(later)
      assert.deepStrictEqual(yield* eventsOf(orgId), [events[1]])
      assert.deepStrictEqual((yield* statesOf(orgId)).toSorted(), ["delivered", "pending"])
      assert.strictEqual((yield* deliveriesOf(orgId, { event_id: events[1] })).length, 2)
      const [again] = yield* claim(later)
      assert.strictEqual(again!.body, second[0]!.body)
      yield* record([attempt(again!, { retryAt: plus(later, 5) }, later)], later)
      assert.strictEqual((yield* findDelivery(orgId, again!.deliveryId)).attempt_log.length, 2)
      yield* removeOld(later)
      const [last] = yield* claim(plus(later, 5))
      yield* record([attempt(last!, "Delivered", plus(later, 5))], plus(later, 5))
      yield* removeOld(later)
      assert.deepStrictEqual([yield* eventsOf(orgId), yield* deliveriesOf(orgId)], [[], []])
    },
  )

  it.effect("retention: a resent delivery stays and is delivered", function* () {
    const now = nextTime()
    yield* prepare(now)
    const { orgId } = yield* insertEvents([now])
    const [old] = yield* settleAll(now, ["Exhausted"])
    const later = plus(now, 86_400)
    yield* retry(orgId, old!.deliveryId, later)
    yield* removeOld(later)
    const [again] = yield* claim(later)
    assert.strictEqual(again!.body, old!.body)
    yield* record([attempt(again!, "Delivered", later)], later)
  })

  it.effect("retention: skipped and canceled deliveries and events without a receiver are removed too", function* () {
    const now = nextTime()
    yield* prepare(now)
    const { orgId } = yield* insertOrg()
    yield* publishAt(orgId, now)
    const endpoint = yield* insertEndpoint(orgId)
    yield* publishAt(orgId, now)
    yield* updateEndpoint(orgId, endpoint, now, { active: false })
    yield* publishAt(orgId, now)
    assert.deepStrictEqual((yield* statesOf(orgId)).toSorted(), ["canceled", "skipped"])
    yield* removeOld(plus(now, 86_400))
    assert.deepStrictEqual([yield* eventsOf(orgId), yield* deliveriesOf(orgId)], [[], []])
  })

  it.effect(
    "retention: an attempt in flight is recorded, although its endpoint has ended and its event is past its time",
    function* () {
      const now = nextTime()
      const later = plus(now, 86_400)
      yield* prepare(now)
      const { orgId } = yield* insertOrg()
      const endpoint = yield* insertEndpoint(orgId)
      yield* publishAt(orgId, now)
      yield* publishAt(orgId, later)
      const [gone, kept] = (yield* claim(later)).toSorted((a, b) => (a.deliveryId < b.deliveryId ? -1 : 1))
      yield* updateEndpoint(orgId, endpoint, now, { active: false })
      yield* removeOld(later)
      yield* record([attempt(gone!, "Delivered", later), attempt(kept!, "Delivered", later)], later)
      assert.deepStrictEqual(yield* statesOf(orgId), ["delivered", "delivered"])
    },
  )

  it.effect(
    "retention: the key of an event is kept as long as the event, and of one with a pending delivery too",
    function* () {
      const now = nextTime()
      const later = plus(now, 86_400)
      yield* prepare(now)
      const { orgId } = yield* insertOrg()
      const gone = yield* publishAt(orgId, now, "gone")
      yield* insertEndpoint(orgId)
      const pending = yield* publishAt(orgId, now, "pending")
      const kept = yield* publishAt(orgId, later, "kept")
      yield* removeOld(later)
      assert.strictEqual(yield* publishAt(orgId, later, "pending"), pending)
      assert.strictEqual(yield* publishAt(orgId, later, "kept"), kept)
      assert.notStrictEqual(yield* publishAt(orgId, later, "gone"), gone)
      yield* settleAll(later, ["Delivered", "Delivered", "Delivered"])
      yield* removeOld(later)
      assert.notStrictEqual(yield* publishAt(orgId, later, "pending"), pending)
      yield* settleAll(later, ["Delivered", "Delivered"])
    },
  )

  it.effect(
    "retention: an event of a clock that is far ahead stays, and one of a clock that is far behind is delivered",
    function* () {
      const now = nextTime()
      const later = plus(now, 86_400)
      yield* prepare(now)
      const { events, orgId } = yield* insertEvents([plus(now, -20 * 86_400), now, plus(now, 30 * 86_400)])
      yield* removeOld(later)
      assert.deepStrictEqual(yield* eventsOf(orgId), events.toReversed())
      assert.strictEqual((yield* settleAll(later, ["Delivered", "Delivered"])).length, 2)
      yield* removeOld(later)
      assert.deepStrictEqual(yield* eventsOf(orgId), [events[2]])
      yield* settleAll(plus(now, 31 * 86_400), ["Delivered"])
    },
  )

  it.effect(
    "retention: an org with a shorter one loses what is older, except what is pending, and no other org does",
    function* () {
      const [orgs, { removeJobsOfOrg, removeOfOrg, shorterOrgs }] = [yield* OrgRepository, yield* RetentionRepository]
      const now = nextTime()
      const later = plus(now, 86_400)
      yield* prepare(now)
      const other = yield* insertEvents([now])
      const { events, orgId } = yield* insertEvents([now, plus(now, 1), plus(now, 2), later], 2)
      const job = (at: DateTime.Utc) => Effect.flatMap(idOf(at), (jobId) => insertJob(orgId, { jobId }))
      const end = (jobId: string, at: DateTime.Utc) =>
        Effect.flatMap(idOf(at), (endId) => cancelJob(orgId, jobId, at, { endId }))
      // Jobs that ended recently must not hide older ones.
      const endedLater = yield* Effect.replicateEffect(job(now), 5)
      const [canceled, queued] = [yield* job(now), yield* job(now)]
      yield* end(canceled, now)
      for (const one of endedLater) yield* end(one, later)
      for (const one of yield* claim(later)) {
        const decision = one.eventId === events[1] ? { retryAt: plus(later, 5) } : ("Delivered" as const)
        yield* record([attempt(one, decision, later)], later)
      }
      yield* orgs.update(orgId, { retentionDays: 3 }, newEntry({ target: orgId }))
      assert.deepStrictEqual(
        (yield* shorterOrgs("", 1_000)).filter((org) => org.orgId === orgId),
        [{ orgId, days: 3 }],
      )
      assert.deepStrictEqual(yield* shorterOrgs(orgId, 1), [])
      const remove = Effect.gen(function* () {
        let removed = 0
        for (const one of [removeOfOrg, removeJobsOfOrg]) {
          let next: string | null = ""
          while (next !== null) {
            const batch: Effect.Success<ReturnType<typeof one>> = yield* one(
              orgId,
              plus(now, 3_600),
              Duration.zero,
              next,
              2,
            )
            removed += batch.removed
            next = batch.next
          }
        }
        return removed
      })
      assert.strictEqual(yield* remove, 3)
      assert.strictEqual(yield* remove, 0)
      assert.deepStrictEqual(yield* eventsOf(orgId), [events[3], events[1]])
      assert.deepStrictEqual((yield* deliveriesOf(orgId)).length, 4)
      assert.deepStrictEqual((yield* jobsOf(orgId)).toSorted(), [...endedLater, queued].toSorted())
      assert.deepStrictEqual(yield* eventsOf(other.orgId), other.events)
      const retried = yield* settleAll(plus(later, 5), ["Delivered", "Delivered"])
      assert.deepStrictEqual(
        retried.map(({ eventId }) => eventId),
        [events[1], events[1]],
      )
      yield* orgs.update(orgId, { retentionDays: null }, newEntry({ target: orgId }))
      assert.notInclude(
        (yield* shorterOrgs("", 1_000)).map((org) => org.orgId),
        orgId,
      )
    },
  )

  // Seen failing: the audit log was kept forever.
  it.effect("retention: the entries of the audit log go after their time", function* () {
    const [orgs, audit] = [yield* OrgRepository, yield* AuditRepository]
    const now = nextTime()
    yield* prepare(now, "audit")
    const orgIds = yield* Effect.forEach([now, plus(now, 60), plus(now, 3_700)], (time) =>
      Effect.gen(function* () {
        const orgId = yield* newId
        yield* orgs.insert({ orgId, name: "Acme", createdAt: at(0) }, newEntry({ id: yield* idOf(time), at: time }))
        return orgId
      }),
    )
    const left = Effect.forEach(orgIds, (orgId) =>
      Effect.map(audit.list(orgId, { limit: 10 }), ({ items }) => items.length),
    )
    yield* removeOld(plus(now, 3_599), "audit")
    assert.deepStrictEqual(yield* left, [1, 1, 1])
    yield* removeOld(plus(now, 3_600), "audit")
    assert.deepStrictEqual(yield* left, [0, 0, 1])
  })

  it.effect("retention: a job goes with the range in which it ended, with its idempotency key", function* () {
    const { orgId } = yield* insertOrg()
    const now = nextTime()
    const later = plus(now, 86_400)
    yield* prepare(now)
    const job = Effect.fnUntraced(function* (idempotencyKey: string | null = null) {
      return yield* insertJob(orgId, { jobId: yield* idOf(now), idempotencyKey })
    })
    const end = Effect.fnUntraced(function* (jobId: string, at: DateTime.Utc) {
      yield* finish(orgId, jobId, completed(), at, { endId: yield* idOf(at) })
      return jobId
    })
    const canceled = yield* job("canceled")
    yield* cancelJob(orgId, canceled, now, { endId: yield* idOf(now) })
    const ended = yield* end(yield* job("ended"), now)
    const endedLater = yield* end(yield* job("ended later"), later)
    const queued = yield* job("queued")
    yield* insertEndpoint(orgId)
    const pending = yield* end(yield* job("pending"), now)
    yield* removeOld(later)
    assert.deepStrictEqual((yield* jobsOf(orgId)).toSorted(), [endedLater, pending, queued].toSorted())
    const again = (key: string) => insertJob(orgId, { idempotencyKey: key })
    for (const [key, id] of [
      ["queued", queued],
      ["ended later", endedLater],
      ["pending", pending],
    ] as const) {
      assert.strictEqual(yield* again(key), id)
    }
    for (const [key, id] of [
      ["canceled", canceled],
      ["ended", ended],
    ] as const) {
      assert.strictEqual(yield* failureOf(findJob(orgId, id)), noSuchJob)
      assert.notStrictEqual(yield* again(key), id)
    }
    const [delivery] = yield* settleAll(later, ["Delivered"])
    assert.strictEqual((yield* findDelivery(orgId, delivery!.deliveryId)).job_id, pending)
    yield* removeOld(later)
    assert.strictEqual(yield* failureOf(findJob(orgId, pending)), noSuchJob)
    assert.notStrictEqual(yield* again("pending"), pending)
  })

  // Seen failing when the key of a removed job was forgotten whatever job had it.
  it.effect("retention: a newer job keeps its unique key when an older one with the key is removed", function* () {
    const [now, unique] = [nextTime(), { key: "k", states: ["queued"] as const, since: null, debounces: false }]
    const later = plus(now, 86_400)
    yield* prepare(now)
    for (const isOfOrg of [false, true]) {
      const { orgId } = yield* insertOrg()
      const old = yield* insertJob(orgId, { jobId: yield* idOf(now), unique })
      yield* cancelJob(orgId, old, now, { endId: yield* idOf(now) })
      const newer = yield* insertJob(orgId, { jobId: yield* idOf(later), unique })
      assert.notStrictEqual(newer, old)
      const ofOrg = RetentionRepository.use((retention) =>
        retention.removeJobsOfOrg(orgId, later, Duration.zero, "", 100),
      )
      yield* isOfOrg ? ofOrg : removeOld(later)
      assert.strictEqual(yield* failureOf(findJob(orgId, old)), noSuchJob)
      assert.strictEqual(yield* insertJob(orgId, { unique }), newer)
    }
  })
}
