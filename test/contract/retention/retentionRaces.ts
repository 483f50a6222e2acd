import { assert } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { JobRepository, type UniqueJob } from "#src/domain/jobs/JobRepository.ts"
import { RetentionRepository } from "#src/domain/Retention.ts"
import { meet } from "../meet.ts"
import { insertOrg, newEntry } from "../support.ts"
import { idOf, nextTime, prepare, publishAt, removeOld } from "./retention.ts"
import {
  attempt,
  claim,
  createJob,
  deliveriesOf,
  epoch,
  failed,
  finish,
  insertEndpoint,
  plus,
  record,
  recover,
  retry,
} from "../webhooks/webhookSupport.ts"

/**
 * Promise (Retention): Retention removes nothing that is pending. A delivery that was answered as due is sent, and
 * nothing of a removed event remains.
 */

/** An org with an endpoint and old deliveries, some of which failed. */
const insertOld = Effect.gen(function* () {
  // Ranges are created in the order of time. What is due comes before what other races have left, as always.
  const [time, now] = [nextTime(4), epoch()]
  yield* prepare(time)
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId)
  for (let n = 0; n < 4; n++) yield* publishAt(orgId, time, null, now)
  const claimed = yield* claim(now)
  yield* record(
    claimed.map((one, n) => attempt(one, n % 2 === 0 ? "Exhausted" : "Delivered", now)),
    now,
  )
  const failed = (yield* deliveriesOf(orgId)).filter(({ state }) => state === "failed")
  return { orgId, endpoint, claimed, failed, now, later: plus(now, 86_400), old: plus(time, 3_600) }
})

/**
 * Rows without their parents: deliveries of missing events, and attempts of missing deliveries; wrong counts of
 * attempts; and deliveries in two places.
 */
const orphans = Effect.flatMap(
  SqlClient.SqlClient,
  // Joins, because other races have left many rows.
  (sql) => sql`
    WITH all_deliveries AS (
      SELECT id, event_id, attempts, (attempt_started_at IS NOT NULL)::int AS inline FROM deliveries
      UNION ALL SELECT delivery_id, event_id, attempts, 0 FROM pending_deliveries
    )
    SELECT d.id FROM all_deliveries d LEFT JOIN events e ON e.id = d.event_id
    LEFT JOIN (SELECT delivery_id, count(*) AS n FROM delivery_attempts GROUP BY delivery_id) a ON a.delivery_id = d.id
    WHERE e.id IS NULL OR d.attempts <> coalesce(a.n, 0) + d.inline
    UNION ALL SELECT delivery_id FROM delivery_attempts a
    WHERE NOT EXISTS (SELECT FROM all_deliveries d WHERE d.id = a.delivery_id)
    UNION ALL SELECT id FROM all_deliveries GROUP BY id HAVING count(*) > 1`,
).pipe(Effect.orDie)

/**
 * Retention against operations that need the old rows: a delivery that was reported due again must be sent. Seen
 * failing without the lock on the deliveries, and when a retry did not check that its delivery still exists.
 */
export const retentionRaces = {
  "remove old events, resend one of their deliveries": Effect.gen(function* () {
    const { failed, later, old, orgId } = yield* insertOld
    const { delivery_id } = failed[0]!
    const outcomes = yield* meet(removeOld(old), retry(orgId, delivery_id, later))
    assert.strictEqual(outcomes[0], "ok")
    assert.include(["ok", "NotFound"], outcomes[1])
    const due = yield* claim(later)
    assert.deepStrictEqual(
      due.map(({ deliveryId }) => deliveryId),
      outcomes[1] === "ok" ? [delivery_id] : [],
    )
    assert.deepStrictEqual(yield* orphans, [])
    yield* record(
      due.map((one) => attempt(one, "Delivered", later)),
      later,
    )
    return outcomes
  }),

  "remove old events, resend those of their endpoint": Effect.gen(function* () {
    const { endpoint, later, now, old, orgId } = yield* insertOld
    let resent = -1
    const outcomes = yield* meet(
      removeOld(old),
      Effect.tap(recover(orgId, endpoint, plus(now, -10), later), (count) => Effect.sync(() => (resent = count))),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    const due = yield* claim(later)
    assert.strictEqual(due.length, resent)
    assert.deepStrictEqual(yield* orphans, [])
    yield* record(
      due.map((one) => attempt(one, "Delivered", later)),
      later,
    )
    return [...outcomes, `${resent} resent`]
  }),

  "remove old events, record an attempt of one": Effect.gen(function* () {
    const { failed, later, old, orgId } = yield* insertOld
    yield* retry(orgId, failed[0]!.delivery_id, later)
    const due = yield* claim(later)
    const outcomes = yield* meet(
      removeOld(old),
      record(
        due.map((one) => attempt(one, "Delivered", later)),
        later,
      ),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    assert.deepStrictEqual(yield* orphans, [])
    const left = yield* deliveriesOf(orgId)
    assert.isTrue(left.every(({ state }) => state === "delivered"))
    return [...outcomes, `${left.length} left`]
  }),

  "remove old events, remove them at another replica": Effect.gen(function* () {
    const { old, orgId } = yield* insertOld
    const outcomes = yield* meet(removeOld(old), removeOld(old))
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    assert.deepStrictEqual(yield* deliveriesOf(orgId), [])
    assert.deepStrictEqual(yield* orphans, [])
    return outcomes
  }),

  "remove old events, publish one with the key of an old event": Effect.gen(function* () {
    const { later, now, old, orgId } = yield* insertOld
    const first = yield* publishAt(orgId, plus(old, -1), "key", now)
    yield* record(
      (yield* claim(now)).map((one) => attempt(one, "Delivered", now)),
      now,
    )
    let second = ""
    const outcomes = yield* meet(
      removeOld(old),
      Effect.tap(publishAt(orgId, plus(old, 86_400), "key", later), (id) => Effect.sync(() => (second = id))),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    const due = yield* claim(later)
    assert.deepStrictEqual(
      due.map(({ eventId }) => eventId),
      second === first ? [] : [second],
    )
    yield* record(
      due.map((one) => attempt(one, "Delivered", later)),
      later,
    )
    return [...outcomes, second === first ? "the old event" : "a new event"]
  }),

  "remove old events of an org, retry one of its jobs": Effect.gen(function* () {
    const time = nextTime(4)
    yield* prepare(time)
    const { orgId } = yield* insertOrg()
    const unique: UniqueJob = { key: "one", states: ["queued", "running"], since: null, debounces: false }
    const { jobId } = yield* createJob(orgId, { jobId: yield* idOf(time), unique })
    yield* finish(orgId, jobId, failed(), time, { endId: yield* idOf(time) })
    const before = plus(time, 3_600)
    const outcomes = yield* meet(
      RetentionRepository.use((retention) => retention.removeOfOrg(orgId, before, Duration.zero, "", 100)),
      JobRepository.use((jobs) => jobs.retry(orgId, jobId, undefined, before, newEntry())),
    )
    assert.strictEqual(outcomes[0], "ok")
    assert.include(["ok", "NotFound", "Conflict"], outcomes[1])
    // A job that was retried has its key still.
    const next = yield* createJob(orgId, { unique })
    assert.strictEqual(next.created, outcomes[1] !== "ok")
    assert.strictEqual(next.jobId === jobId, outcomes[1] === "ok")
    return outcomes
  }),

  "remove old events of an org, resend those of its endpoint": Effect.gen(function* () {
    const { endpoint, failed, later, old, orgId } = yield* insertOld
    let resent = -1
    const outcomes = yield* meet(
      RetentionRepository.use((retention) => retention.removeOfOrg(orgId, old, Duration.zero, "", 100)),
      Effect.tap(recover(orgId, endpoint, plus(old, -7_200), later), (count) => Effect.sync(() => (resent = count))),
    )
    assert.deepStrictEqual(outcomes, ["ok", "ok"])
    assert.include([0, failed.length], resent)
    const pending = (yield* deliveriesOf(orgId)).filter(({ state }) => state === "pending")
    assert.strictEqual(pending.length, resent)
    assert.deepStrictEqual(yield* orphans, [])
    return [...outcomes, `${resent} resent`]
  }),
}
