import { expect, it } from "@effect/vitest"
import { DateTime } from "effect"
import { bucketOf, countedCause, healthOf, healthRanges, quantile } from "#src/domain/activity/Activity.ts"

const now = DateTime.makeUnsafe("2026-11-20T17:04:05Z")
const row = (cause: string, millis: number, count: number) => ({ cause, bucket: bucketOf(millis), count })

it("the health of an endpoint has its successes, the 95th percentile of its responses, and its causes", () => {
  const rows = [row("", 80, 90), row("", 400, 4), row("503", 900, 6), row("timeout", 15_000, 20), row("503", 80, 1)]
  const health = healthOf(now, rows)
  expect(health).toMatchObject({ since: now, attempts: 121, delivered: 94 })
  expect(health.causes).toEqual([
    { cause: "timeout", attempts: 20 },
    { cause: "503", attempts: 7 },
  ])
  // 101 responses: 95 of them within 500 ms, and the 96th is one of the six up to a second.
  expect(health.p95_ms).toBeGreaterThan(500)
  expect(health.p95_ms).toBeLessThanOrEqual(1_000)
})

it("an endpoint without responses has no percentile", () => {
  expect(healthOf(now, [row("timeout", 15_000, 3)]).p95_ms).toBeNull()
  expect(healthOf(now, [])).toEqual({ since: now, attempts: 0, delivered: 0, p95_ms: null, causes: [] })
})

it("a receiver with many statuses makes few causes", () => {
  const statuses = Array.from({ length: 500 }, (_, i) => i + 100)
  expect(new Set(statuses.map((status) => countedCause(false, status, null))).size).toBeLessThan(25)
  expect(countedCause(false, 503, null)).toBe("503")
  expect(countedCause(false, 418, null)).toBe("4xx")
  expect(countedCause(false, null, "dns")).toBe("dns")
  expect(countedCause(true, 204, null)).toBe("")
})

it("the ranges of the health begin with their hour, and with their day", () => {
  expect(healthRanges(now).map(({ every, since }) => [every, since.toJSON()])).toEqual([
    ["hour", "2026-11-19T17:00:00.000Z"],
    ["day", "2026-11-13T00:00:00.000Z"],
    ["day", "2026-10-21T00:00:00.000Z"],
  ])
})

it("a quantile is estimated within its bucket, and never above the last boundary", () => {
  const hits = [
    [Number.POSITIVE_INFINITY, 10],
    [10, 50],
    [20, 40],
  ] as const
  expect(quantile(hits, 0.5)).toBe(10)
  expect(quantile(hits, 0.7)).toBe(15)
  expect(quantile(hits, 0.99)).toBe(20)
})
