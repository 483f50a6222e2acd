import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { EndpointHeaders } from "#src/domain/webhooks/WebhookEndpoint.ts"

const is = Schema.is(EndpointHeaders)

describe("extra headers of an endpoint", () => {
  it("are at most ten, with valid HTTP names and values of visible ASCII", () => {
    const ten = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`x-${n}`, "v"]))
    for (const good of [{}, ten, { Authorization: "Bearer a b" }, { "x-a": "~" }, { "x-a": "x".repeat(1024) }]) {
      assert.isTrue(is(good), JSON.stringify(good))
    }
    const values = ["", " a", "a ", "a\nb", "a\r", "é", "\t", "x".repeat(1025)]
    for (const value of values) assert.isFalse(is({ "x-a": value }), JSON.stringify(value))
    for (const name of ["", "a b", "a:", "é", "a\n"]) assert.isFalse(is({ [name]: "v" }), name)
    assert.isFalse(is({ ...ten, more: "v" }))
    assert.isFalse(is({ "X-A": "v", "x-a": "w" }))
  })

  it("exclude those that the service or the connection sets, in any case", () => {
    const reserved = [
      "Host",
      "content-type",
      "Content-Length",
      "content-x",
      "connection",
      "keep-alive",
      "TE",
      "trailer",
    ]
    const others = [
      "transfer-encoding",
      "upgrade",
      "expect",
      "proxy-authorization",
      "Cookie",
      "webhook-id",
      "Webhook-X",
    ]
    const ours = ["x-webhook-signature", "X-Webhook-Anything", "x-event-type", "User-Agent", "traceparent"]
    for (const name of [...reserved, ...others, ...ours]) assert.isFalse(is({ [name]: "v" }), name)
    for (const name of ["authorization", "x-host", "tex", "cookies", "x-content-type"]) {
      assert.isTrue(is({ [name]: "v" }), name)
    }
  })
})
