import { assert, describe, it } from "@effect/vitest"
import { endpointReceivers, receivers } from "#src/domain/webhooks/EventPatterns.ts"

const url = "https://example.com/cb"

describe("receivers", () => {
  const endpoints = [
    { id: "a", active: true },
    { id: "b", active: false },
    { id: "c", active: true },
  ]
  const all = [
    { endpointId: "a", state: "pending" },
    { endpointId: "b", state: "skipped" },
    { endpointId: "c", state: "pending" },
  ] as const
  const callbackAlone = [{ endpointId: null, state: "pending" }] as const

  it.each([
    // callback_url, secret, skip_callbacks, who receives the event
    [null, false, false, all],
    [null, true, false, all],
    [url, false, false, all],
    [url, true, false, callbackAlone],
    [null, false, true, []],
    [null, true, true, []],
    [url, false, true, []],
    [url, true, true, []],
    ["", true, false, callbackAlone],
  ] as const)(
    "callback_url %j, secret %j, skip_callbacks %j",
    (callback_url, hasCallbackSecret, skip_callbacks, expected) => {
      const job = { callback_url, hasCallbackSecret, skip_callbacks }
      assert.deepStrictEqual(receivers(job, endpoints), expected)
      assert.deepStrictEqual(receivers(job, []), expected === all ? [] : expected)
    },
  )

  it("endpoints that get an event later are chosen by the same rule", () => {
    assert.deepStrictEqual(endpointReceivers(endpoints), all)
  })
})
