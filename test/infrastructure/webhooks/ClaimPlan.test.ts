import { assert, describe } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { SqlClient } from "effect/sql"
import type { Claim } from "#src/domain/webhooks/DeliveryQueue.ts"
import { claimSql, lanesFound } from "#src/infrastructure/webhooks/claimDeliveries.ts"
import type { Reads } from "#src/infrastructure/queue/queuePositions.ts"
import { databases } from "../../support/databases.ts"
import { it } from "../../support/it.ts"

const now = DateTime.makeUnsafe("2026-11-20T17:00:00.000Z")
const claim: Claim = {
  claimId: "explained",
  now,
  leaseUntil: DateTime.add(now, { minutes: 1 }),
  limit: 512,
  laneCap: 10,
  lanes: new Map(),
  free: { count: 2_048, bytes: 2 ** 30 },
  reserve: 1 / 3,
  minBacklog: 1,
  orgs: new Map(),
}

/** An array as the driver sends it. */
interface ArrayParameter {
  readonly oid: number
  readonly value: ReadonlyArray<unknown>
}
const isArray = (value: unknown): value is ArrayParameter =>
  typeof value === "object" && value !== null && "oid" in value && "value" in value
const arrayTypes: Readonly<Record<number, string>> = { 1007: "int[]", 1009: "text[]", 1022: "float8[]" }

/** A literal of the type that the statement infers. */
const literal = (value: unknown): string => {
  if (value === null) return "NULL"
  if (value instanceof Date) return `'${value.toISOString()}'`
  if (isArray(value)) return `'{${value.value.map((one) => (one === null ? "NULL" : JSON.stringify(one))).join(",")}}'`
  return `'${String(value).replaceAll("'", "''")}'`
}

/** A lane of callbacks of an org. */
const laneOf = (org: string, lane: number) => `${org}${`${lane}`.padStart(25, "0")} https://receiver.example`

/** Inserts deliveries of an org into the queue: a number of lanes, and of deliveries in each. */
const insertBacklog = (sql: SqlClient.SqlClient, org: string, lanes: number, each: number, backlogged = true) => sql`
  INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id, bytes,
    created_at, updated_at)
  SELECT ${org}::text || lpad(lane::text, 25, '0') || ' https://receiver.example', lane || '-' || n, 'event', 0, 0,
    ${DateTime.toDateUtc(now)},
    ${backlogged}, ${org}, 0, now(), now()
  FROM generate_series(1, ${lanes}::int) lane, generate_series(1, ${each}::int) n`

/**
 * The number of pages that a claim reads. Its statement was planned on a small queue of another org, without
 * statistics.
 */
const pagesOf = Effect.fnUntraced(function* (
  reads: Reads,
  few: number,
  fill: Effect.Effect<unknown, unknown, SqlClient.SqlClient>,
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('A', 'A', now()), ('C', 'C', now())`
  // New statistics would make PostgreSQL plan it again.
  yield* sql`ALTER TABLE pending_deliveries SET (autovacuum_enabled = false)`
  const [text, values] = claimSql(sql, claim, reads, sql`NULL`).compile()
  const [row] = yield* Effect.gen(function* () {
    const types = values.map((value) => (isArray(value) ? arrayTypes[value.oid] : "unknown"))
    yield* sql.unsafe(`PREPARE planned (${types.join(", ")}) AS ${text}`)
    const execute = `EXECUTE planned(${values.map(literal).join(", ")})`
    yield* insertBacklog(sql, "C", few, 10)
    yield* sql.unsafe(execute)
    yield* fill
    return yield* sql.unsafe<{ "QUERY PLAN": ReadonlyArray<{ readonly Plan: Record<string, number> }> }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${execute}`,
    )
  }).pipe(sql.withTransaction)
  const plan = row!["QUERY PLAN"][0]!.Plan
  // A claim that finds nothing has one row, and no plan to speak of.
  assert.isAbove(plan["Actual Rows"]!, 1)
  return plan["Shared Hit Blocks"]! + plan["Shared Read Blocks"]!
})

/** What a claim reads that knows these lanes of the org A. */
const readsOf = (lanes: number): Reads => ({
  headSince: null,
  headSize: 512,
  orgs: lanes === 0 ? [] : [{ orgId: "A", share: 512, isCut: false }],
  lanes: Array.from({ length: lanes }, (_, n) => ({ orgId: "A", lane: laneOf("A", n + 1), since: null })),
  more: false,
  short: false,
})

describe.each(Object.entries(databases))("a claim that was planned on a small queue, %s", (_, database) => {
  // Seen failing with 500 lanes: a bitmap scan read everything behind each lane, 214,049 pages in all.
  it.effect.each([0, 500])("with %s known lanes reads a backlog of many lanes only as far as it needs", (few) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      assert.isBelow(yield* pagesOf(readsOf(512), few, insertBacklog(sql, "A", 2_000, 10)), 10_000)
    }).pipe(Effect.provide(database)),
  )

  // Seen failing with 2,310 pages: bitmap scans read and sorted all due deliveries.
  it.effect("reads no more due deliveries than the head", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      assert.isBelow(yield* pagesOf(readsOf(0), 0, insertBacklog(sql, "A", 1, 60_000, false)), 1_000)
    }).pipe(Effect.provide(database)),
  )

  // Seen failing from the beginning: the claim reads the deliveries in flight again, a page for a few of each.
  it.effect("from a place in a lane reads no delivery before it", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const [lane, since] = [laneOf("A", 1), { micros: 1000 * now.epochMilliseconds, id: "1-9" }]
      const inFlight = sql`
        UPDATE pending_deliveries SET claim_id = 'other', lease_until = ${DateTime.toDateUtc(claim.leaseUntil)}
        WHERE lane = ${lane} AND delivery_id < ${since.id}`
      const fill = Effect.andThen(insertBacklog(sql, "A", 1, 20_000), inFlight)
      const pages = yield* pagesOf({ ...readsOf(1), lanes: [{ orgId: "A", lane, since }] }, 0, fill)
      assert.isBelow(pages, 300)
    }).pipe(Effect.provide(database)),
  )
})

describe("the next claim begins", () => {
  const second = 1_000_000
  const from = (counts: ReadonlyArray<readonly [number, number | null]>, ordered: boolean) => {
    const rows = [5, 3, 4].map((at) => ({
      id: `delivery ${at}`,
      lane: laneOf("A", 1),
      ordered,
      backlog_micros: at * second,
      lanes: counts,
    }))
    return lanesFound(rows, readsOf(2))
  }
  const first = { micros: 2.5 * second, id: "" }

  it("at the last delivery that was taken of a lane", () => {
    const found = from(
      [
        [3, 3 * second],
        [0, null],
      ],
      false,
    )
    assert.deepStrictEqual(found, [
      [3, { micros: 5 * second, id: "delivery 5" }],
      [0, null],
    ])
  })

  // Seen failing without the half second: a delivery that another replica commits late would be passed in its lane.
  it("half a second before the first, when one was not taken, or the lane sends in order", () => {
    assert.deepStrictEqual(from([[4, 3 * second]], false), [[4, first]])
    assert.deepStrictEqual(from([[3, 3 * second]], true), [[3, first]])
  })
})
