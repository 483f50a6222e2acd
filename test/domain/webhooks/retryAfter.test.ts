import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { parseRetryAfter } from "#src/domain/webhooks/RetryDecision.ts"

const now = Date.parse("2026-11-20T17:00:00.000Z")
const seconds = (header: string | null, at = now) => {
  const asked = parseRetryAfter(header, at)
  return asked === undefined ? undefined : Duration.toSeconds(asked)
}
const day = 86_400

// An HTTP date is in GMT in every time zone of the service.
describe.each(["UTC", "America/New_York", "Asia/Kathmandu"])("Retry-After, in %s", (zone) => {
  const before = process.env.TZ
  beforeAll(() => void (process.env.TZ = zone))
  afterAll(() => {
    if (before === undefined) delete process.env.TZ
    else process.env.TZ = before
  })

  it.each([
    ["0", 0],
    ["1", 1],
    ["120", 120],
    ["007", 7],
    [" 30\t", 30],
    ["86400", day],
    ["86401", day],
    ["99999999999", day],
    ["9".repeat(30), day],
    ["Fri, 20 Nov 2026 17:00:05 GMT", 5],
    ["Friday, 20-Nov-26 17:00:05 GMT", 5],
    ["Fri Nov 20 17:00:05 2026", 5],
    ["Tue Dec  1 17:00:00 2026", day],
    ["Fri, 20 Nov 2026 17:00:00 GMT", 0],
    ["Sat, 21 Nov 2026 16:59:59 GMT", day - 1],
    ["Fri, 31 Dec 9999 23:59:59 GMT", day],
  ])("%j means %d seconds", (header, expected) => {
    assert.strictEqual(seconds(header), expected)
  })

  it.each([
    null,
    "",
    " ",
    "-1",
    "+1",
    "1.5",
    "1e3",
    "0x10",
    "Infinity",
    "5s",
    "5, 6",
    "٣",
    // A date in the past adds no wait.
    "Fri, 20 Nov 2026 16:59:59 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    // No HTTP dates, even if Date.parse accepts them.
    "2026-11-20T17:00:05.000Z",
    "May 2099",
    "soon 2099",
    "Fri, 20 Nov 2099",
    "Fri, 20 Nov 2026 17:00:05",
    "Fri, 20 Nov 2026 17:00:05 EST",
    "Fri, 20 Nov 2026 17:00:05 +0100",
    "Fri, 20 Nox 2026 17:00:05 GMT",
    "Fri, 20 Nov 2026 27:00:05 GMT",
    "20 Nov 2026 17:00:05 GMT",
  ])("%j is ignored", (header) => {
    assert.isUndefined(seconds(header))
  })

  it("counts from now, to the millisecond", () => {
    assert.strictEqual(seconds("Fri, 20 Nov 2026 17:00:05 GMT", now + 1), 4.999)
    assert.strictEqual(seconds("9".repeat(400)), day)
  })
})
