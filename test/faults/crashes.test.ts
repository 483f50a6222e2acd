import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { assertDelivered, makeRestartable, makeTenant, makeVerifier, places } from "./support.ts"

/** A service with one endpoint at a verifier. */
const begin = Effect.fnUntraced(function* (place: (typeof places)[keyof typeof places], variables = {}) {
  const { environment, inFlight } = yield* place
  const service = yield* makeRestartable({ ...environment, ...variables })
  const verifier = yield* makeVerifier()
  const tenant = yield* makeTenant(service.current)
  yield* tenant.endpoint(`${verifier.url}/a`)
  const kill = Effect.suspend(() => service.current().end("SIGKILL"))
  return { ...service, environment, kill, inFlight, verifier, tenant }
})

const never = () => new Promise<never>(() => {})

describe.concurrent.each(Object.entries(places))("kill -9 on %s", (_, place) => {
  // Seen failing when a completion was answered before its transaction, and when a claim skipped the deliveries of a
  // dead claim.
  /**
   * Promise (Delivered once): After kill -9 after the completion's response, after the receipt, or during the record:
   * delivered, at most once more.
   */
  it.live("after the answer to a completion, and before its event is sent", function* () {
    const { inFlight, kill, restart, tenant, verifier } = yield* begin(place, { WEBHOOK_TIMEOUT: "4s" })
    // Ten attempts wait for their answers, so the two others do not start, but may be claimed.
    verifier.behaviour.answer = never
    const jobs = yield* tenant.finishMany(12)
    yield* verifier.arrived(10)
    yield* kill
    const held = yield* inFlight
    assert.strictEqual(verifier.receipts.length, 10)
    assert.isAtLeast(held.size, 10)
    verifier.behaviour.answer = () => 200
    yield* restart
    yield* tenant.settled
    assert.strictEqual(yield* assertDelivered(tenant, verifier.receipts, jobs, ["/a"], [held]), 10)
  })

  // Seen failing when a claim skipped the deliveries of a dead claim.
  /** Promise (Delivered once) */
  it.live("after the receipt and before the record", function* () {
    const { current, inFlight, kill, restart, tenant, verifier } = yield* begin(place)
    verifier.behaviour.answer = () => {
      current().signal("SIGKILL")
      return 200
    }
    const job = yield* tenant.finish(0)
    yield* verifier.arrived(1)
    yield* kill
    const held = yield* inFlight
    verifier.behaviour.answer = () => 200
    yield* restart
    yield* tenant.settled
    assert.strictEqual(yield* assertDelivered(tenant, verifier.receipts, [job], ["/a"], [held]), 1)
  })
})

describe.concurrent("on postgres", () => {
  // Seen failing when a claim skipped the deliveries of a dead claim.
  /** Promise (Delivered once) */
  it.live("kill -9 during a record: everything or nothing is recorded", function* () {
    const { environment, inFlight, kill, restart, tenant, verifier } = yield* begin(places.postgres)
    const sql = yield* adminClient(environment["DATABASE_URL"]!)
    // A client of its own, because a transaction sees the activity of the time of its start.
    const watcher = yield* adminClient(environment["DATABASE_URL"]!)
    const waiting = watcher`SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'gatehouse'`
    yield* sql`CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$`
    yield* sql`CREATE TRIGGER wait_for_lock BEFORE DELETE ON pending_deliveries
        FOR EACH STATEMENT EXECUTE FUNCTION wait_for_lock()`
    const jobs = yield* Effect.gen(function* () {
      yield* sql`SELECT pg_advisory_xact_lock(1)`
      const jobs = yield* tenant.finishMany(5)
      yield* verifier.arrived(5)
      yield* Effect.repeat(Effect.delay(waiting, "10 millis"), { until: (pids) => pids.length > 0 })
      yield* kill
      return jobs
    }).pipe(sql.withTransaction)
    // PostgreSQL executes a record that was sent even if its client is gone: its deliveries are not in flight any
    // more.
    const held = yield* inFlight
    yield* restart
    yield* tenant.settled
    assert.strictEqual(yield* assertDelivered(tenant, verifier.receipts, jobs, ["/a"], [held]), held.size)
  })

  // Seen failing when recordAttempts did not compare the claim.
  /** Promise (Late workers): A replica that stalls past its lease cannot record over another. */
  it.live("a replica that stalls past its lease cannot overwrite the record of the next claim", function* () {
    const { current, restart, tenant, verifier } = yield* begin(places.postgres)
    const stalled = current()
    verifier.behaviour.answer = () => {
      stalled.signal("SIGSTOP")
      return 500
    }
    const job = yield* tenant.finish(0)
    yield* verifier.arrived(1)
    verifier.behaviour.answer = () => 200
    // From here on, another replica serves the tenant.
    yield* restart
    yield* tenant.settled
    stalled.signal("SIGCONT")
    yield* Effect.sleep("1 second")
    const { deliveries } = yield* tenant.call("webhooks/deliveries/list", {})
    assert.deepInclude(deliveries[0], { state: "delivered", attempts: 1 })
    assert.notInclude(stalled.log(), "could not be recorded")
    const held = new Set(verifier.receipts.map(({ id }) => id))
    assert.strictEqual(yield* assertDelivered(tenant, verifier.receipts, [job], ["/a"], [held]), 1)
  })
})
