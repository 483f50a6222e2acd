import { assert } from "@effect/vitest"
import { Clock, Context, DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { ClaimedDelivery } from "#src/domain/webhooks/DeliveryQueue.ts"
import { throttleHorizonMillis, throttleMargin } from "#src/domain/webhooks/Slots.ts"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"
import { insertOrg } from "../support.ts"
import {
  attempt,
  claim,
  claimWithMore,
  epoch,
  insertEndpoint,
  type It,
  plus,
  publish,
  record,
  removeEndpoint,
  updateEndpoint,
} from "./webhookSupport.ts"

/** Promise (Pace) */

/**
 * The times of the next attempts of endpoints with a limit per second, which no port returns, and the clock that
 * decides them.
 */
export class Throttles extends Context.Service<
  Throttles,
  {
    /** Runs an effect while that clock stands still. */
    readonly atOnce: <A, E, R>(orgId: string, effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
    /** Sets that clock forward by a number of milliseconds, as the org's endpoints see it. */
    readonly forward: (orgId: string, millis: number) => Effect.Effect<void>
    /** The endpoints of the org that have such a time. */
    readonly of: (orgId: string) => Effect.Effect<ReadonlyArray<string>>
  }
>()("gatehouse/test/contract/Throttles") {}

export const fake = Layer.effect(
  Throttles,
  Effect.map(WebhookWorld, ({ endpoints, throttles }) => ({
    atOnce: (_orgId, effect) =>
      Effect.flatMap(Clock.Clock, (clock) => {
        const at = clock.currentTimeMillisUnsafe()
        const still = { ...clock, currentTimeMillisUnsafe: () => at, currentTimeMillis: Effect.succeed(at) }
        return Effect.provideService(effect, Clock.Clock, still)
      }),
    forward: (_orgId, millis) =>
      Effect.sync(() => {
        for (const [lane, next] of throttles) throttles.set(lane, next - millis)
      }),
    of: (orgId) =>
      Effect.sync(() => [...throttles.keys()].filter((endpoint) => endpoints.get(endpoint)?.orgId === orgId)),
  })),
)

export const sql = Layer.effect(
  Throttles,
  Effect.map(SqlClient.SqlClient, (sql) => ({
    // The statements of one transaction see the same now().
    atOnce: (_orgId, effect) =>
      sql.withTransaction(effect).pipe(Effect.catchTag("SqlError", Effect.die)) as typeof effect,
    forward: (orgId, millis) =>
      sql`
        UPDATE endpoint_throttles SET next_at = next_at - ${millis}::float8 * interval '1 millisecond'
        WHERE org_id = ${orgId}`.pipe(Effect.asVoid, Effect.orDie),
    of: (orgId) =>
      sql<{ id: string }>`SELECT endpoint_id AS id FROM endpoint_throttles WHERE org_id = ${orgId}`.pipe(
        Effect.map((rows) => rows.map(({ id }) => id)),
        Effect.orDie,
      ),
  })),
)

const step = (maxPerSecond: number) => (1000 * throttleMargin) / maxPerSecond
const deliver = (claimed: ReadonlyArray<ClaimedDelivery>, now: DateTime.Utc) =>
  record(
    claimed.map((one) => attempt(one, "Delivered", now)),
    now,
  )
/** An endpoint with a limit per second and a number of deliveries. */
const insertThrottled = Effect.fnUntraced(function* (now: DateTime.Utc, maxPerSecond: number, events: number) {
  const { orgId } = yield* insertOrg()
  const endpoint = yield* insertEndpoint(orgId, { maxPerSecond, now })
  for (let n = 0; n < events; n++) yield* publish(orgId, "a.b", now)
  /** The times of the endpoint's attempts in milliseconds after the first one's. */
  const timesOf = (claimed: ReadonlyArray<ClaimedDelivery>) => {
    const delays = claimed.filter(({ endpointId }) => endpointId === endpoint).map(({ delayMillis }) => delayMillis!)
    return delays.map((delay) => Math.round(delay - delays[0]!))
  }
  return { orgId, endpoint, timesOf }
})

/** The contract of limits per second in every DeliveryQueue. */
export const throttles = (it: It<Throttles>) => {
  it.effect("a limit per second spreads attempts over all claims, and leaves the rest in the queue", function* () {
    const { atOnce, forward } = yield* Throttles
    const now = epoch()
    const { endpoint, orgId, timesOf } = yield* insertThrottled(now, 10, 12)
    const other = yield* insertEndpoint(orgId, { now })
    yield* publish(orgId, "a.b", now)
    const isOther = ({ endpointId }: ClaimedDelivery) => endpointId === other
    const room = Math.floor(throttleHorizonMillis / step(10)) + 1
    const steps = Array.from({ length: room }, (_, n) => Math.round(n * step(10)))
    yield* atOnce(
      orgId,
      Effect.gen(function* () {
        const { deliveries: first, throttledUntil } = yield* claimWithMore(now, { laneCap: 50 })
        assert.deepStrictEqual(timesOf(first), steps)
        assert.deepStrictEqual(
          first.filter(isOther).map(({ delayMillis }) => delayMillis),
          [null],
        )
        assert.isNotNull(throttledUntil)
        assert.isTrue(DateTime.isLessThan(throttledUntil!, plus(now, 1)))
        // Another replica continues where this one stopped, even while attempts are in flight.
        assert.deepStrictEqual(yield* claim(now, { laneCap: 50 }), [])
        yield* deliver(first, now)
        yield* forward(orgId, throttleHorizonMillis)
        // The clock of another replica differs by minutes: it decides nothing. The last time was 540 ms after the
        // first one's.
        const second = yield* claim(plus(now, 300), { laneCap: 50 })
        assert.deepStrictEqual(timesOf(second), steps.slice(0, timesOf(second).length))
        assert.strictEqual(timesOf(second).length, Math.floor((2 * throttleHorizonMillis) / step(10)) + 1 - room)
        yield* deliver(second, now)
        yield* updateEndpoint(orgId, endpoint, now, { maxPerSecond: null })
        const rest = yield* claim(now, { laneCap: 50 })
        assert.strictEqual(timesOf(first).length + timesOf(second).length + rest.length, 13)
        assert.isTrue(rest.every(({ delayMillis }) => delayMillis === null))
      }),
    )
  })

  // Seen failing with the time of the replica's clock: after a step back of ten minutes nothing was claimed.
  it.effect("a limit per second: a step of the clock stops no endpoint", function* () {
    const { atOnce, forward } = yield* Throttles
    const now = epoch()
    const { endpoint, orgId, timesOf } = yield* insertThrottled(now, 10, 12)
    yield* atOnce(
      orgId,
      Effect.gen(function* () {
        const first = yield* claim(now, { laneCap: 50 })
        yield* deliver(first, now)
        // The replica's clock is set back.
        assert.deepStrictEqual(yield* claim(plus(now, 0), { laneCap: 50 }), [])
        // The database's clock is set back: one attempt at the horizon, and from there on as before.
        yield* forward(orgId, -600_000)
        const again = yield* claim(now, { laneCap: 50 })
        assert.deepStrictEqual(timesOf(again), [0])
        yield* deliver(again, now)
        yield* forward(orgId, throttleHorizonMillis)
        assert.strictEqual(timesOf(yield* claim(now, { laneCap: 50 })).length, 4)
        yield* removeEndpoint(orgId, endpoint, now)
      }),
    )
  })

  // Seen failing when the time was written before the endpoint was.
  it.effect("a limit per second: what is refused leaves no time behind, and a deletion removes it", function* () {
    const { of } = yield* Throttles
    const now = epoch()
    const { endpoint, orgId } = yield* insertThrottled(now, 10, 1)
    yield* claim(now)
    const ids = yield* of(orgId)
    assert.deepStrictEqual(ids, [endpoint])
    const unknown = `${endpoint.slice(0, -1)}${endpoint.endsWith("0") ? "1" : "0"}`
    yield* Effect.flip(updateEndpoint(orgId, unknown, now, { maxPerSecond: 5 }))
    yield* Effect.exit(insertEndpoint("0".repeat(26), { maxPerSecond: 5, now }))
    assert.deepStrictEqual([yield* of(orgId), yield* of("0".repeat(26))], [[endpoint], []])
    yield* removeEndpoint(orgId, endpoint, now)
    assert.deepStrictEqual(yield* of(orgId), [])
  })
}
