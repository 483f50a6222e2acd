import { assert } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import type { SqlClient } from "effect/sql"
import type { Service } from "../support/process.ts"
import { makeTenant, makeVerifier, until } from "./support.ts"

/** The longest time of a request here, on a machine that others use too. */
export const within = Duration.seconds(5)

/** The fields of answers about an org's deliveries. */
interface Answer {
  readonly success: boolean
  readonly recovered: number
  readonly deliveries: ReadonlyArray<{ readonly delivery_id: string; readonly state: string }>
  readonly next_cursor: string | null
  readonly state: string
}

/** Sends requests as an org, each once. Each must be answered with 200 within `within`. */
export const asker =
  (service: Service, key: string) =>
  <A = Answer>(path: string, json: object) =>
    Effect.gen(function* () {
      const [took, { status, text, json: answer }] = yield* Effect.timed(
        service.send("POST", `/v1/${path}`, { json, headers: { "x-api-key": key } }),
      )
      assert.strictEqual(status, 200, `${path}: ${text}`)
      assert.isBelow(Duration.toMillis(took), Duration.toMillis(within), path)
      return { ...(answer as A), took: Duration.toMillis(took) }
    })
export type Ask = ReturnType<typeof asker>

/** All deliveries of an endpoint in a state, as a client finds them by following the cursor. */
export const listed = Effect.fnUntraced(function* (ask: Ask, endpointId: string, state: string, enough: number) {
  const ids: Array<string> = []
  for (let cursor: string | null | undefined; cursor !== null && ids.length < enough;) {
    const { deliveries, next_cursor } = yield* ask("webhooks/deliveries/list", {
      webhook_endpoint_id: endpointId,
      state,
      limit: 100,
      ...(cursor === undefined ? {} : { cursor }),
    })
    ids.push(...deliveries.map(({ delivery_id }) => delivery_id))
    cursor = next_cursor
  }
  return ids
})

/**
 * Inserts deliveries of an endpoint, each of an event of its own: queued and due, or failed. They become visible
 * together. Returns the ids of the first and the last.
 */
export const addDeliveries = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  orgId: string,
  endpointId: string,
  count: number,
  state: "pending" | "failed",
) {
  // Like ids of August 2026, because a resend reads no ids from before its range.
  const id = sql.literal(`('01M0000000' || lpad(n::text, 16, '0'))`)
  const numbers = sql`generate_series(1, ${count}::int) AS n`
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, created_at)
    SELECT ${id}, ${orgId}, ${id}, 'job.completed', '{"job_id":"' || n || '","text":"' || repeat('x', 400) || '"}', now()
    FROM ${numbers}`
  yield* sql`
    WITH ended AS (
      INSERT INTO deliveries (id, org_id, event_id, endpoint_id, state, attempts, created_at, updated_at)
      SELECT ${id}, ${orgId}, ${id}, ${endpointId}, ${state}, 0, now(), now() FROM ${numbers}
        WHERE ${state}::text <> 'pending'
    )
    INSERT INTO pending_deliveries
      (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id, bytes, created_at, updated_at)
    SELECT ${endpointId}, ${id}, ${id}, 0, 0, now(), true, ${orgId}, 440, now(), now()
    FROM ${numbers} WHERE ${state}::text = 'pending'`
  const [row] = yield* sql<{ first: string; last: string }>`
    SELECT min(id) AS first, max(id) AS last FROM (
      SELECT id FROM deliveries WHERE endpoint_id = ${endpointId}
      UNION ALL SELECT delivery_id FROM pending_deliveries WHERE lane = ${endpointId}
    ) AS made`
  return row!
})

/** The number of an endpoint's deliveries that have ended, by state, and are pending, and the number of open sweeps. */
export const rowsOf = (sql: SqlClient.SqlClient, endpointId: string) =>
  sql<{ states: Record<string, number>; queued: number; sweeps: number }>`
    SELECT (SELECT coalesce(json_object_agg(state, count), '{}') FROM (
        SELECT state, count(*)::int FROM deliveries WHERE endpoint_id = ${endpointId} GROUP BY state
      ) AS counted) AS states,
      (SELECT count(*)::int FROM pending_deliveries WHERE left(lane, 26) = ${endpointId}) AS queued,
      (SELECT count(*)::int FROM sweeps) AS sweeps`.pipe(Effect.map(([row]) => row!))

/** The value below which this part of all values is. */
export const percentile = (values: ReadonlyArray<number>, part: number) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))]!

/** An org that finishes a job at a regular interval in milliseconds, and whose receiver works. */
export const makeNeighbour = Effect.fnUntraced(function* (service: Service) {
  const verifier = yield* makeVerifier()
  const tenant = yield* makeTenant(() => service)
  yield* tenant.endpoint(verifier.url)
  const arrivals = new Map<string, number>()
  let seen = 0
  const read = () => {
    for (; seen < verifier.receipts.length; seen++) {
      const { at, jobId } = verifier.receipts[seen]!
      if (!arrivals.has(jobId)) arrivals.set(jobId, at)
    }
  }

  /**
   * Finishes jobs while an effect runs. Returns the result of the effect, and for every job the milliseconds from the
   * request to the receipt of its event. All events must arrive.
   */
  const beside = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
    const begun = new Map<string, number>()
    const finish = Effect.gen(function* () {
      const { job_id } = yield* tenant.call("jobs/create", { workflow: "w" })
      begun.set(job_id, performance.now())
      yield* tenant.call("jobs/complete", { job_id })
    })
    const state = { ended: false }
    const finishing = yield* Effect.forkChild(
      Effect.gen(function* () {
        const fibers: Array<Fiber.Fiber<void>> = []
        while (!state.ended) {
          fibers.push(yield* Effect.forkChild(finish))
          yield* Effect.sleep("50 millis")
        }
        yield* Effect.forEach(fibers, Fiber.join, { discard: true })
      }),
    )
    const result = yield* effect
    state.ended = true
    yield* Fiber.join(finishing)
    const jobs = [...begun]
    yield* until(() => {
      read()
      return jobs.every(([id]) => arrivals.has(id))
    })
    const times = jobs.map(([id, at]) => arrivals.get(id)! - at)
    return { result, times, p50: percentile(times, 0.5), p99: percentile(times, 0.99), max: Math.max(...times) }
  })

  return { tenant, beside }
})
