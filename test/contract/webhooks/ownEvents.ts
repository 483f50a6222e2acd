import { assert } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import type { NewEvent } from "#src/domain/ServiceEvent.ts"
import type { EventFilter } from "#src/domain/webhooks/EventFilter.ts"
import { EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { passes } from "../../fakes/eventFilter.ts"
import { failureOf, insertOrg, newId } from "../support.ts"
import {
  attempt,
  claim,
  completed,
  deliveriesOf,
  epoch,
  failed,
  finish,
  findDelivery,
  insertEndpoint,
  insertJob,
  type It,
  plus,
  publish,
  record,
  statesOf,
  updateEndpoint,
} from "./webhookSupport.ts"

/** Promise (Order): An endpoint that begins to send in order sends what was queued before first. */

/** Promise (What an endpoint asks for) */

const noSuchEvent = JSON.stringify({ error: "There is no such event.", code: "not_found" })
const list = (orgId: string, type?: string, limit = 100, cursor?: string) =>
  EventRepository.use((events) => events.list(orgId, type, { limit, cursor }))
const makeEvents = (count: number, now: DateTime.Utc, fields: (n: number) => Partial<NewEvent>) =>
  Effect.forEach(Array.from({ length: count }), (_, n) =>
    Effect.map(newId, (id): NewEvent => ({
      id,
      type: "invoice.paid",
      body: "{}",
      idempotencyKey: null,
      channels: [],
      createdAt: now,
      ...fields(n),
    })),
  )
const range = (length: number) => Array.from({ length }, (_, n) => n)
/** Picks one of a list, as a seed decides. */
const dice = (seed: number) => {
  let state = seed
  return <A>(all: ReadonlyArray<A>): A => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return all[(state >>> 8) % all.length]!
  }
}

/** The endpoints that an event was queued for, and the state of each delivery. */
const receiversOf = (orgId: string, event_id: string) =>
  Effect.map(deliveriesOf(orgId), (all) =>
    Object.fromEntries(
      all.filter((one) => one.event_id === event_id).map((one) => [one.webhook_endpoint_id, one.state]),
    ),
  )

/** The contract of every EventRepository. */
export const ownEvents = (it: It) => {
  /**
   * Promise (What an endpoint asks for): Of endpoints with channels, only those with one of the event's receive it.
   */
  it.effect("events: of endpoints with channels, only those with one of the event's receive it", function* () {
    const [{ orgId }, now] = [yield* insertOrg(), epoch()]
    const [all, a, ab] = [
      yield* insertEndpoint(orgId),
      yield* insertEndpoint(orgId, { channels: ["a"], ordered: true }),
      yield* insertEndpoint(orgId, { channels: ["a", "b"], eventTypes: ["x.*"] }),
    ]
    yield* insertEndpoint(orgId, { channels: ["a"], eventTypes: ["other.*"] })
    // One request, so that all of them are in one statement.
    const channelsOf: ReadonlyArray<ReadonlyArray<string>> = [[], ["a"], ["b"], ["c", "b"], ["c"]]
    const events = yield* makeEvents(channelsOf.length, now, (n) => ({ type: "x.y", channels: channelsOf[n]! }))
    const published = yield* EventRepository.use((repository) => repository.publish(orgId, events))
    const expected = [[all], [all, a, ab], [all, ab], [all, ab], [all]]
    assert.deepStrictEqual(
      published.deliveries,
      expected.map(({ length }) => length),
    )
    for (const [n, id] of published.ids.entries()) {
      assert.sameMembers(Object.keys(yield* receiversOf(orgId, id)), expected[n]!)
      const found = yield* EventRepository.use((repository) => repository.find(orgId, id))
      assert.deepStrictEqual(found.channels, channelsOf[n])
    }
    // A job's event has no channel.
    const job = yield* insertJob(orgId)
    yield* finish(orgId, job, completed(1), now)
    const ofJob = (yield* deliveriesOf(orgId)).filter(({ job_id }) => job_id === job)
    assert.deepStrictEqual(
      ofJob.map((one) => one.webhook_endpoint_id),
      [all],
    )
  })

  it.effect("events: of endpoints with a filter, only those whose filter is true of an event receive it", function* () {
    const [{ orgId }, now] = [yield* insertOrg(), epoch()]
    const filters: ReadonlyArray<EventFilter | null> = [
      null,
      { "data.plan": "pro" },
      { "data.plan": ["team", null], event: "x.y" },
      { "data.amount": { gte: 10, lt: 20 } },
      { "data.plan": { not: ["pro", "team"] } },
      { any: [{ "data.user.mail": { starts_with: 'a"@' } }, { not: { "data.amount": { exists: true } } }] },
    ]
    const endpoints = yield* Effect.forEach(filters, (filter) => insertEndpoint(orgId, { filter }))
    const cases: ReadonlyArray<readonly [data: string, passing: ReadonlyArray<number>]> = [
      [`{"plan":"pro","amount":10}`, [0, 1, 3]],
      [`{"plan":"team","amount":20}`, [0, 2]],
      [`{"plan":null,"amount":"15"}`, [0, 2, 4]],
      // A list is walked through by nothing, and one type is not compared with another.
      [`{"plan":["pro"],"amount":[15]}`, [0, 4]],
      [`{"amount":19.999,"user":{"mail":"a\\"@b"}}`, [0, 3, 4, 5]],
      [`{"user":[{"mail":"a\\"@b"}]}`, [0, 4, 5]],
      [`[]`, [0, 4, 5]],
      [`"pro"`, [0, 4, 5]],
    ]
    const events = yield* makeEvents(cases.length, now, (n) => ({
      type: "x.y",
      body: `{"event":"x.y","data":${cases[n]![0]}}`,
    }))
    const published = yield* EventRepository.use((repository) => repository.publish(orgId, events))
    for (const [n, id] of published.ids.entries()) {
      const [data, passing] = cases[n]!
      const expected = passing.map((one) => endpoints[one]!)
      assert.sameMembers(Object.keys(yield* receiversOf(orgId, id)), expected, data)
      assert.strictEqual(published.deliveries[n], passing.length)
    }
    // The event of a job is filtered by its own fields. Without a filter that is true, it is stored all the same.
    const ofJobs = yield* insertEndpoint(orgId, { eventTypes: ["job.*"], filter: { "result.ok": true } })
    const job = yield* insertJob(orgId)
    yield* finish(orgId, job, completed({ ok: true }), now)
    const other = yield* insertJob(orgId)
    yield* finish(orgId, other, completed({ ok: "true" }), now)
    const reached = (yield* deliveriesOf(orgId)).filter(({ job_id }) => job_id === job || job_id === other)
    assert.sameDeepMembers<ReadonlyArray<string | null>>(
      reached.map((one) => [one.job_id, one.webhook_endpoint_id]),
      [...[0, 4, 5].flatMap((n) => [job, other].map((id) => [id, endpoints[n]!])), [job, ofJobs]],
    )
    // A change decides about the events after it.
    yield* updateEndpoint(orgId, endpoints[1]!, now, { filter: { "data.plan": "free" } })
    const body = `{"event":"x.y","data":{"plan":"free","amount":1}}`
    assert.property(yield* receiversOf(orgId, yield* publish(orgId, "x.y", now, { body })), endpoints[1]!)
  })

  it.effect("events: a filter is decided as its words say, whatever the fields and the types", function* () {
    const { orgId } = yield* insertOrg()
    const pick = dice(42)
    const some = <A>(one: () => A, most: number) => Array.from({ length: 1 + pick(range(most)) }, one)
    const values = [0, 1, -2.5, 1e21, "", "a", "ab", "é😀", "\u2028\\", true, false, null]
    const value = () => pick(values)
    const ordered = () => pick(values.slice(0, 9))
    const condition = () =>
      pick<() => unknown>([
        value,
        () => some(value, 3),
        () => ({ gt: ordered(), lte: ordered() }),
        () => ({ lt: ordered() }),
        () => ({ gte: ordered() }),
        () => ({ starts_with: pick(["", "a", "é"]) }),
        () => ({ exists: pick([true, false]) }),
        () => ({ not: pick([value, () => some(value, 3)])() }),
      ])()
    const simple = () =>
      Object.fromEntries(some(() => [pick(["a", "a.b", "a.b-c", "data"]), condition()], 2)) as EventFilter
    const filters = Array.from({ length: 30 }, (): EventFilter =>
      pick([simple, simple, () => ({ not: simple() }), () => ({ any: some(simple, 2) })])(),
    )
    const leaf = () => pick([value, value, () => some(value, 2)])()
    const field = () => pick([leaf, () => Object.fromEntries(some(() => [pick(["b", "b-c"]), leaf()], 2))])()
    const bodies = Array.from({ length: 33 }, () =>
      JSON.stringify(Object.fromEntries(some(() => [pick(["a", "data"]), field()], 2))),
    )
    const endpoints = yield* Effect.forEach(filters, (one) => insertEndpoint(orgId, { filter: one }))
    const events = yield* makeEvents(bodies.length, epoch(), (n) => ({ body: bodies[n]! }))
    const { ids } = yield* EventRepository.use((repository) => repository.publish(orgId, events))
    let passed = 0
    for (const [n, id] of ids.entries()) {
      const expected = endpoints.filter((_, one) => passes(filters[one]!, bodies[n]!))
      passed += expected.length
      assert.sameMembers(Object.keys(yield* receiversOf(orgId, id)), expected, bodies[n])
    }
    assert.isAbove(passed, 100)
    assert.isBelow(passed, 890)
  })

  /** Promise (What an endpoint asks for) */
  it.effect("events: those of one time span are due together, at its end", function* () {
    const [{ orgId }, now] = [yield* insertOrg(), epoch()]
    const spans = Math.floor(DateTime.toEpochMillis(now) / 400)
    const at = (millis: number) => DateTime.makeUnsafe(spans * 400 + millis)
    const endpoint = yield* insertEndpoint(orgId, { batch: { max: 30, within_ms: 400 }, now })
    for (const millis of [0, 1, 399]) yield* publish(orgId, "x.y", at(millis))
    yield* publish(orgId, "x.y", at(400))
    assert.strictEqual((yield* claim(at(399))).length, 0)
    const first = yield* claim(at(400), { laneCap: 2 })
    assert.deepStrictEqual(
      first.map((one) => [one.endpointId, one.batchMax]),
      Array.from({ length: 3 }, () => [endpoint, 30]),
    )
    yield* record(
      first.map((one) => attempt(one, "Delivered", at(500))),
      at(500),
    )
    const job = yield* insertJob(orgId, { now: at(700) })
    yield* finish(orgId, job, completed(), at(700))
    assert.strictEqual((yield* claim(at(799))).length, 0)
    assert.strictEqual((yield* claim(at(800))).length, 2)
  })

  it.effect("events: one that PostgreSQL cannot read as JSON of its own passes every filter", function* () {
    const [{ orgId }, now] = [yield* insertOrg(), epoch()]
    const endpoint = yield* insertEndpoint(orgId, { filter: { "data.plan": { not: "pro" } } })
    const body = `{"event":"x.y","data":{"text":"\\u0000"}}`
    assert.property(yield* receiversOf(orgId, yield* publish(orgId, "x.y", now, { body })), endpoint)
  })

  it.effect("events: are queued for the endpoints with a matching pattern, in the same bytes", function* () {
    const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
    const now = epoch()
    const [all, invoices, exact] = [
      yield* insertEndpoint(orgId),
      yield* insertEndpoint(orgId, { eventTypes: ["order.made", "invoice.*"] }),
      yield* insertEndpoint(orgId, { eventTypes: ["invoice.paid"], active: false }),
    ]
    yield* insertEndpoint(orgId, { eventTypes: ["job.*"] })
    yield* insertEndpoint(foreign)
    const body = `{"text":"${"😀".repeat(100)} O'Brien \\u0000"}`
    const paid = yield* publish(orgId, "invoice.paid", now, { body })
    assert.deepStrictEqual(yield* receiversOf(orgId, paid), {
      [all]: "pending",
      [invoices]: "pending",
      [exact]: "skipped",
    })
    const nested = yield* publish(orgId, "invoice.paid.eu", now)
    assert.deepStrictEqual(yield* receiversOf(orgId, nested), { [all]: "pending", [invoices]: "pending" })
    const nobody = yield* publish(foreign, "a.b", now)
    assert.strictEqual(Object.keys(yield* receiversOf(orgId, nobody)).length, 0)
    const deliveries = (yield* deliveriesOf(orgId)).filter(({ event_id }) => event_id === paid)
    for (const { delivery_id, event, job_id } of deliveries) {
      assert.deepStrictEqual([event, job_id], ["invoice.paid", null])
      assert.strictEqual((yield* findDelivery(orgId, delivery_id)).payload, body)
    }
    const claimed = yield* claim(now, { limit: 1000 })
    assert.deepStrictEqual(
      claimed
        .filter((one) => one.orgId === orgId && one.event === "invoice.paid")
        .map((one) => [one.endpointId, one.body, one.url])
        .sort(),
      [
        [all, body, "https://example.com/hook"],
        [invoices, body, "https://example.com/hook"],
      ].sort(),
    )
    yield* record(
      claimed.map((one) => attempt(one, "Delivered", now)),
      now,
    )
    assert.sameMembers(yield* statesOf(orgId), ["delivered", "delivered", "skipped", "delivered", "delivered"])
  })

  it.effect("events: patterns also decide who receives the events of jobs", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const [all, failures, jobs] = [
      yield* insertEndpoint(orgId),
      yield* insertEndpoint(orgId, { eventTypes: ["job.failed"] }),
      yield* insertEndpoint(orgId, { eventTypes: ["job.*"] }),
    ]
    yield* insertEndpoint(orgId, { eventTypes: ["invoice.*", "key.*"] })
    const done = yield* insertJob(orgId)
    yield* finish(orgId, done, completed(), now)
    const broken = yield* insertJob(orgId)
    yield* finish(orgId, broken, failed(), now)
    const to = Effect.fnUntraced(function* (job_id: string) {
      return (yield* deliveriesOf(orgId, { job_id })).map((one) => one.webhook_endpoint_id).toSorted()
    })
    assert.deepStrictEqual(yield* to(done), [all, jobs].sort())
    assert.deepStrictEqual(yield* to(broken), [all, failures, jobs].sort())
    yield* updateEndpoint(orgId, failures, now, { eventTypes: null })
    yield* updateEndpoint(orgId, all, now, { eventTypes: ["invoice.*"] })
    const later = yield* insertJob(orgId)
    yield* finish(orgId, later, completed(), now)
    assert.deepStrictEqual(yield* to(later), [failures, jobs].sort())
  })

  it.effect("events: of events with the same idempotency key, the first one stays", function* () {
    const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
    const now = epoch()
    yield* insertEndpoint(orgId)
    const first = yield* publish(orgId, "a.b", now, { idempotencyKey: "k" })
    assert.strictEqual(yield* publish(orgId, "c.d", plus(now, 1), { idempotencyKey: "k" }), first)
    assert.notStrictEqual(yield* publish(foreign, "a.b", now, { idempotencyKey: "k" }), first)
    assert.deepStrictEqual(
      (yield* list(orgId)).map((event) => [event.event_id, event.type]),
      [[first, "a.b"]],
    )
    assert.strictEqual((yield* deliveriesOf(orgId)).length, 1)
    // In a batch too, beside new keys, and with a key twice.
    const batch = yield* makeEvents(4, now, (n) => ({ idempotencyKey: ["k", "l", null, "l"][n]! }))
    const { ids } = yield* EventRepository.use((events) => events.publish(orgId, batch))
    assert.deepStrictEqual(ids, [first, batch[1]!.id, batch[2]!.id, batch[1]!.id])
    assert.strictEqual((yield* list(orgId)).length, 3)
  })

  it.effect("events: twenty publishes with one key at the same time create one event", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    yield* insertEndpoint(orgId)
    const ids = yield* Effect.all(
      Array.from({ length: 20 }, () => publish(orgId, "a.b", now, { idempotencyKey: "k" })),
      { concurrency: "unbounded" },
    )
    assert.strictEqual(new Set(ids).size, 1)
    assert.deepStrictEqual(yield* statesOf(orgId), ["pending"])
  })

  it.effect(
    "events: a hundred publishes of two orgs at the same time each reach the endpoint of their own org",
    function* () {
      const orgs = [yield* insertOrg(), yield* insertOrg()].map(({ orgId }) => orgId)
      const now = epoch()
      const endpoints = yield* Effect.forEach(orgs, (orgId) => insertEndpoint(orgId))
      const ids = yield* Effect.forEach(
        Array.from({ length: 100 }),
        (_, n) => publish(orgs[n % 2]!, `a.b${n % 3}`, now),
        { concurrency: "unbounded" },
      )
      assert.strictEqual(new Set(ids).size, 100)
      for (const [n, orgId] of orgs.entries()) {
        const deliveries = yield* deliveriesOf(orgId)
        assert.sameMembers(
          deliveries.map(({ event_id }) => event_id),
          ids.filter((_, at) => at % 2 === n),
        )
        assert.isTrue(deliveries.every((one) => one.webhook_endpoint_id === endpoints[n] && one.state === "pending"))
        assert.strictEqual(new Set(deliveries.map(({ delivery_id }) => delivery_id)).size, 50)
      }
    },
  )

  it.effect("events: lists the events of one org, newest first, by type, in pages", function* () {
    const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
    const now = epoch()
    const ids: Array<string> = []
    for (let n = 0; n < 5; n++) ids.push(yield* publish(orgId, n % 2 === 0 ? "a.even" : "a.odd", plus(now, n)))
    const jobId = yield* insertJob(orgId)
    yield* finish(orgId, jobId, completed(), plus(now, 6))
    const other = yield* publish(foreign, "a.even", now)
    const all = yield* list(orgId)
    assert.deepStrictEqual(
      all.filter(({ job_id }) => job_id !== null).map((event) => [event.type, event.job_id]),
      [["job.completed", jobId]],
    )
    const own = all.filter(({ job_id }) => job_id === null)
    assert.deepStrictEqual(
      own.map(({ event_id }) => event_id),
      ids.toReversed(),
    )
    assert.deepStrictEqual(Object.keys(own[0]!).sort(), ["created_at", "event_id", "job_id", "type"])
    assert.deepStrictEqual(
      (yield* list(orgId, "a.odd")).map(({ event_id }) => event_id),
      [ids[3], ids[1]],
    )
    assert.deepStrictEqual(
      (yield* list(orgId, "a.even", 1, ids[4])).map(({ event_id }) => event_id),
      [ids[2], ids[0]],
    )
    const found = yield* EventRepository.use((events) => events.find(orgId, ids[0]!))
    assert.deepStrictEqual([found.type, found.payload], ["a.even", '{"event":"a.even"}'])
    assert.strictEqual(DateTime.toEpochMillis(found.created_at), DateTime.toEpochMillis(now))
    const missing = (id: string) => failureOf(EventRepository.use((events) => events.find(orgId, id)))
    assert.strictEqual(yield* missing(other), noSuchEvent)
    assert.strictEqual(yield* missing("x"), noSuchEvent)
  })

  it.effect("events: each type is listed once, with its last time, in pages", function* () {
    const { orgId } = yield* insertOrg()
    const now = epoch()
    for (const [n, type] of ["b.x", "a.z", "b.x", "a-b.c", "a_b.c", "b.x.y"].entries()) {
      yield* publish(orgId, type, plus(now, n))
    }
    const types = (limit: number, cursor?: string) =>
      EventRepository.use((events) => events.types(orgId, { limit, cursor }))
    const shown = ({ items }: Effect.Success<ReturnType<typeof types>>) =>
      items.map(({ type, last_at }) => [type, DateTime.toEpochMillis(last_at) - DateTime.toEpochMillis(now)])
    const all = [
      ["a-b.c", 3000],
      ["a.z", 1000],
      ["a_b.c", 4000],
      ["b.x", 2000],
      ["b.x.y", 5000],
    ]
    assert.deepStrictEqual(shown(yield* types(100)), all)
    const first = yield* types(2)
    assert.deepStrictEqual([shown(first), first.hasMore], [all.slice(0, 2), true])
    const rest = yield* types(3, "a.z")
    assert.deepStrictEqual([shown(rest), rest.hasMore], [all.slice(2), false])
  })

  it.effect("deliveries: lists by event, type and time, combined with each other filter", function* () {
    const [{ orgId }, { orgId: foreign }] = [yield* insertOrg(), yield* insertOrg()]
    // The ids are made now, because a range of time is a range of ids.
    const now = yield* DateTime.now
    const [a, b] = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId)]
    const paid = yield* publish(orgId, "invoice.paid", now)
    const made = yield* publish(orgId, "order.made", plus(now, 10))
    const jobId = yield* insertJob(orgId)
    yield* finish(orgId, jobId, completed(), plus(now, 20))
    const ofJob = (yield* deliveriesOf(orgId, { job_id: jobId }))[0]!.event_id
    const listed = (filter: Parameters<typeof deliveriesOf>[1], org = orgId) =>
      Effect.map(deliveriesOf(org, filter), (all) => all.map((one) => one.event_id).toSorted())
    assert.deepStrictEqual(yield* listed({ event_id: paid }), [paid, paid])
    assert.deepStrictEqual(yield* listed({ event_id: ofJob }), [ofJob, ofJob])
    assert.deepStrictEqual(yield* listed({ event_id: paid, webhook_endpoint_id: a }), [paid])
    assert.deepStrictEqual(yield* listed({ event_id: paid, job_id: jobId }), [])
    assert.deepStrictEqual(yield* listed({ event_id: paid, state: "delivered" }), [])
    assert.deepStrictEqual(yield* listed({ event_id: paid }, foreign), [])
    assert.deepStrictEqual(yield* listed({ event_type: "order.made" }), [made, made])
    assert.deepStrictEqual(yield* listed({ event_type: "job.completed", webhook_endpoint_id: b }), [ofJob])
    assert.deepStrictEqual(yield* listed({ event_type: "order.made", state: "pending" }), [made, made])
    assert.deepStrictEqual(yield* listed({ since: plus(now, 10) }), [made, made, ofJob, ofJob].toSorted())
    assert.deepStrictEqual(yield* listed({ until: plus(now, 10) }), [paid, paid])
    assert.deepStrictEqual(
      yield* listed({ since: now, until: plus(now, 20), state: "pending" }),
      [...[paid, paid], ...[made, made]].toSorted(),
    )
    assert.deepStrictEqual(yield* listed({ since: plus(now, 1), until: plus(now, 10) }), [])
  })
}
