import { assert, describe } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { adminClient, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { makeReceiver, type Behaviour } from "../support/receiver.ts"
import { addDeliveries, asker, type Ask, listed, makeNeighbour, rowsOf, within } from "./crowding.ts"
import { makeTenant, onPostgres } from "./support.ts"

/** The number of deliveries of one endpoint. */
const count = 50_000
/** The longest time until the rows are up to date. */
const settleTime = Duration.minutes(3)

/** An org with a receiver and very many deliveries, beside an org with few, on PostgreSQL. */
const makeWorld = Effect.fnUntraced(function* (state: "pending" | "failed", behaviour: Behaviour) {
  const url = yield* freshPostgres()
  const sql = yield* adminClient(url)
  const service = yield* startService({ ...onPostgres(url).environment, WEBHOOK_TIMEOUT: "2s" })
  const neighbour = yield* makeNeighbour(service)
  const receiver = yield* makeReceiver()
  receiver.behave(behaviour)
  const tenant = yield* makeTenant(() => service)
  const ask = asker(service, tenant.key)
  yield* tenant.endpoint(receiver.url)
  const [endpoint] = yield* sql<{ id: string }>`SELECT id FROM webhook_endpoints WHERE org_id = ${tenant.orgId}`
  const endpointId = endpoint!.id
  const alone = yield* neighbour.beside(Effect.sleep("3 seconds"))
  const add = addDeliveries(sql, tenant.orgId, endpointId, count, state)
  const settled = rowsOf(sql, endpointId).pipe(
    Effect.delay("250 millis"),
    Effect.repeat({ until: ({ sweeps }) => sweeps === 0 }),
    Effect.timed,
    Effect.timeout(settleTime),
  )
  return { sql, service, neighbour, receiver, ask, endpointId, alone, add, settled }
})
type World = Effect.Success<ReturnType<typeof makeWorld>>

/** Runs an operation of one org while another org works, and logs the times of both. */
const beside = Effect.fnUntraced(function* <A, E, R>(world: World, what: string, effect: Effect.Effect<A, E, R>) {
  const found = yield* world.neighbour.beside(effect)
  const ms = (value: number) => value.toFixed(0)
  yield* Effect.log(
    `${what}: ${JSON.stringify(found.result)}; events of another org: p50 ${ms(world.alone.p50)} → ${ms(found.p50)}, p99 ${ms(world.alone.p99)} → ${ms(found.p99)}, at most ${ms(found.max)} ms; ${found.times.length} of them`,
  )
  // On a busy machine every event takes longer, also alone.
  assert.isBelow(found.max, Math.max(Duration.toMillis(within), 20 * world.alone.p99))
  return found.result
})

/** Asserts that an org sees its ended endpoint without pending deliveries, from the moment of its end. */
const assertEnded = Effect.fnUntraced(function* (ask: Ask, endpointId: string, last: string) {
  assert.deepStrictEqual(yield* listed(ask, endpointId, "pending", 1), [])
  assert.lengthOf(yield* listed(ask, endpointId, "canceled", 300), 300)
  const { state } = yield* ask("webhooks/deliveries/get", { delivery_id: last })
  assert.strictEqual(state, "canceled")
})

/** Asserts the rows after the sweep: all are canceled, except those that were attempted. */
const assertSettled = (rows: { states: Record<string, number>; queued: number }) => {
  assert.strictEqual(rows.queued, 0)
  const { canceled = 0, failed = 0, ...others } = rows.states
  assert.deepStrictEqual(others, {})
  assert.strictEqual(canceled + failed, count)
  assert.isBelow(failed, 50)
}

const detail = (ask: Ask, endpointId: string) =>
  ask<{ active: boolean; deactivated_reason: string | null; deliveries: Record<string, number> }>("webhooks/get", {
    id: endpointId,
  })

describe(`${count} deliveries of one endpoint`, () => {
  it.live.each(["update", "delete"])(
    "%s answers and counts at once, and does not delay other orgs",
    function* (action) {
      const world = yield* makeWorld("pending", "hang")
      const { add, ask, endpointId, settled } = world
      yield* beside(
        world,
        action,
        Effect.gen(function* () {
          const { last } = yield* add
          const json = { id: endpointId }
          // Attempts are in flight and hang.
          yield* Effect.sleep("1 second")
          const { took } =
            action === "update"
              ? yield* ask("webhooks/update", { ...json, active: false })
              : yield* ask("webhooks/delete", json)
          yield* assertEnded(ask, endpointId, last)
          if (action === "update") {
            const { active, deactivated_reason, deliveries } = yield* detail(ask, endpointId)
            assert.deepStrictEqual([active, deactivated_reason], [false, "by_request"])
            assert.strictEqual(deliveries["pending"], 0)
          }
          const [settling, rows] = yield* settled
          assertSettled(rows)
          return { answered: took, settled: Duration.toMillis(settling) }
        }),
      )
    },
  )

  it.live.each([
    ["of failed deliveries", "failed"],
    ["of deliveries that are being canceled", "pending"],
  ] as const)("recover %s counts at once, sends the first soon, and does not delay other orgs", ([what, state]) =>
    Effect.gen(function* () {
      const world = yield* makeWorld(state, "hang")
      const { add, ask, endpointId, receiver, settled } = world
      yield* beside(
        world,
        `recover ${what}`,
        Effect.gen(function* () {
          yield* add
          if (state === "pending") {
            for (const active of [false, true]) yield* ask("webhooks/update", { id: endpointId, active })
          }
          const before = receiver.received.length
          const json = { webhook_endpoint_id: endpointId, since: "2026-01-01T00:00:00.000Z" }
          const { recovered, took } = yield* ask("webhooks/deliveries/recover", json)
          assert.isAtLeast(recovered, Math.min(count, 10_000))
          assert.isAtMost(recovered, count)
          const [sent] = yield* receiver.arrived(before + 1).pipe(Effect.timeout(within), Effect.timed)
          const [settling, rows] = yield* settled
          assert.deepStrictEqual(rows.states, {})
          assert.strictEqual(rows.queued, count)
          return { answered: took, sent: Duration.toMillis(sent), settled: Duration.toMillis(settling) }
        }),
      )
    }),
  )

  it.live.each([
    ["410", { status: 410 }, "gone"],
    ["500 after five days of failures", { status: 500 }, "failing"],
  ] as const)(
    "a receiver that answers %s deactivates the endpoint, and does not delay other orgs",
    function* ([what, behaviour, reason]) {
      const world = yield* makeWorld("pending", behaviour)
      const { add, ask, endpointId, settled, sql } = world
      if (reason === "failing") {
        yield* sql`
          UPDATE webhook_endpoints SET failing_since = date_trunc('second', now()) - interval '6 days', failures = 10
          WHERE id = ${endpointId}`
      }
      yield* beside(
        world,
        what,
        Effect.gen(function* () {
          const { last } = yield* add
          const [took, { deactivated_reason }] = yield* detail(ask, endpointId).pipe(
            Effect.repeat({ until: ({ active }) => !active }),
            Effect.timeout("30 seconds"),
            Effect.timed,
          )
          assert.strictEqual(deactivated_reason, reason)
          yield* assertEnded(ask, endpointId, last)
          const [settling, rows] = yield* settled
          assertSettled(rows)
          return { ended: Duration.toMillis(took), settled: Duration.toMillis(settling) }
        }),
      )
    },
  )
})
