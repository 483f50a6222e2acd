import { afterEach, assert, beforeEach, describe, it, vi } from "@effect/vitest"
import { Effect, Layer, Redacted, Schema } from "effect"
import { readFileSync } from "node:fs"
import type { IncomingHttpHeaders } from "node:http"
import { Webhook } from "standardwebhooks"
import { Signer } from "#src/domain/webhooks/Signatures.ts"
import * as Signatures from "#src/infrastructure/crypto/Signatures.ts"
import {
  type VerifyWebhookOptions,
  verifyWebhook,
  type WebhookHeaders,
  WebhookVerificationError,
} from "#src/sdk/webhooks.ts"

const at = 1614265330
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const body = '{"event":"job.completed","job_id":"1","nonce":"n","result":"✓ é 😀"}'
const deliveryId = "01KAF8ZJ4V2M6T8Q0R1S2T3V4W"

const signed = (secrets: ReadonlyArray<string> = [secret], text = body): Record<string, string> =>
  Effect.runSync(
    Signer.use((signer) => signer.prepare(secrets.map((one) => Redacted.make(one)))).pipe(
      Effect.map((sign) => sign({ deliveryId, event: "job.completed", body: text, timestamp: at })),
      Effect.provide(Layer.provide(Signer.layer, Signatures.layer)),
    ),
  )

const plainOnly = (secrets?: ReadonlyArray<string>) => ({
  "x-webhook-signature": signed(secrets)["x-webhook-signature"]!,
})

const verify = (options: Partial<Record<keyof VerifyWebhookOptions, unknown>> = {}) =>
  verifyWebhook({ headers: signed(), body, secret, ...options } as VerifyWebhookOptions)

/** The code with which a webhook is refused; "accepted" when it is accepted. */
const refusal = (options: Parameters<typeof verify>[0], sentence = /[.?]$/) => {
  try {
    verify(options)
  } catch (error) {
    assert.instanceOf(error, WebhookVerificationError)
    assert.match(error.message, sentence)
    assert.notInclude(`${error.stack} ${JSON.stringify(error)}`, "MfKQ9r8")
    return error.code
  }
  return "accepted"
}

beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now: at * 1000 }))
afterEach(() => void vi.useRealTimers())

describe("verifyWebhook", () => {
  it("accepts the official vector of Standard Webhooks", () => {
    const headers = {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    const verified = verify({ headers, body: '{"test": 2432232314}' })
    assert.deepStrictEqual(verified.event as unknown, { test: 2432232314 })
    assert.strictEqual(verified.deliveryId, "msg_p5jXN8AQM9LWM0D4loKWxJek")
    assert.deepStrictEqual(verified.timestamp, new Date(at * 1000))
  })

  it.each([secret, secret.replace(/=*$/, ""), "plain", "pässwörd", "whsec_", "whsec_no base64", "whsec_QQ"])(
    "accepts what the service signs with %j, by either signature",
    (secret) => {
      assert.strictEqual(verify({ headers: signed([secret]), secret }).event.job_id, "1")
      const bare = verify({ headers: plainOnly([secret]), secret })
      assert.deepStrictEqual([bare.event.nonce, bare.deliveryId, bare.timestamp], ["n", null, null])
    },
  )

  const Json = Schema.Struct({ text: Schema.String, list: Schema.Array(Schema.Finite) })
  it.prop("accepts webhooks that the standardwebhooks package signs", [Json, Schema.Int], ([json, space]) => {
    const body = JSON.stringify(json, null, space % 4)
    const id = `msg_${Math.abs(space)}`
    const headers = {
      "webhook-id": id,
      "webhook-timestamp": String(at),
      "webhook-signature": new Webhook(secret).sign(id, new Date(at * 1000), body),
    }
    assert.deepStrictEqual(verify({ headers, body }).event as unknown, JSON.parse(body))
  })

  const changed = (change: Record<string, string | undefined>) => ({ headers: { ...signed(), ...change } })
  const given = () => signed()["webhook-signature"]!
  it.each<[string, () => Parameters<typeof verify>[0]]>([
    ["another secret", () => ({ secret: "whsec_AAAA" })],
    ["another body", () => ({ body: body.replace("1", "2") })],
    ["a body written again", () => ({ body: JSON.stringify(JSON.parse(body), null, 1) })],
    ["another id", () => changed({ "webhook-id": "01KAF8ZJ4V2M6T8Q0R1S2T3V4X" })],
    ["another time", () => changed({ "webhook-timestamp": String(at + 1) })],
    ["the time in other digits", () => changed({ "webhook-timestamp": `0${at}` })],
    ["a signature cut short", () => changed({ "webhook-signature": given().slice(0, -1) })],
    ["a signature with text after it", () => changed({ "webhook-signature": `${given()}=` })],
    ["another version", () => changed({ "webhook-signature": given().replace("v1", "v1a") })],
    ["no version", () => changed({ "webhook-signature": given().slice(3) })],
    ["a good x-webhook-signature beside a bad one", () => changed({ "webhook-signature": "v1,AAAA" })],
    ["only x-webhook-signature, of another body", () => ({ headers: plainOnly(), body: "{}" })],
    [
      "only x-webhook-signature, in upper case",
      () => ({
        headers: { "x-webhook-signature": plainOnly()["x-webhook-signature"].toUpperCase() },
      }),
    ],
  ])("refuses %s", (_, options) => assert.strictEqual(refusal(options()), "signature_mismatch"))

  it("finds its signature among others, at any position", () => {
    for (const others of [`v1a,AAAA ${given()}`, `${given()} v2,x`, `v1,AAAA  ${given()} v1a,BBBB`, `x ${given()}`]) {
      assert.strictEqual(verify(changed({ "webhook-signature": others })).deliveryId, deliveryId)
    }
  })

  it("keeps working during a change of the secret, on either side", () => {
    assert.strictEqual(refusal({ headers: signed(["new", secret]) }), "accepted")
    assert.strictEqual(refusal({ headers: signed(["new", secret]), secret: "new" }), "accepted")
    assert.strictEqual(refusal({ headers: signed(), secret: ["new", secret] }), "accepted")
    assert.strictEqual(refusal({ headers: plainOnly(["new", secret]), secret: [secret, "new"] }), "accepted")
    assert.strictEqual(refusal({ headers: plainOnly(["new", secret]) }), "signature_mismatch")
  })

  it.each([
    [300, undefined, "accepted"],
    [301, undefined, "timestamp_too_old"],
    [-300, undefined, "accepted"],
    [-301, undefined, "timestamp_too_new"],
    [0, 0, "accepted"],
    [1, 0, "timestamp_too_old"],
    [-11, 10, "timestamp_too_new"],
    [1e9, Infinity, "accepted"],
  ])("%i s after the timestamp, with a tolerance of %s: %s", (age, toleranceSeconds, code) => {
    vi.setSystemTime((at + age) * 1000 + 999)
    assert.strictEqual(refusal({ toleranceSeconds }), code)
  })

  it("accepts headers in every form, and the body too", () => {
    const upper = Object.fromEntries(Object.entries(signed()).map(([name, value]) => [name.toUpperCase(), value]))
    const lists = Object.fromEntries(Object.entries(signed()).map(([name, value]) => [name, [value]]))
    const incoming: IncomingHttpHeaders = { ...signed(), host: undefined, "set-cookie": ["a", "b"] }
    const forms: ReadonlyArray<WebhookHeaders> = [
      upper,
      lists,
      incoming,
      new Headers(signed()),
      new Map(Object.entries(signed())),
    ]
    for (const headers of forms) assert.strictEqual(verify({ headers }).deliveryId, deliveryId)
    const bytes = new TextEncoder().encode(body)
    const inside = Buffer.concat([Buffer.from("xx"), bytes, Buffer.from("x")]).subarray(2, -1)
    for (const body of [bytes, bytes.buffer, inside, new DataView(bytes.buffer)]) {
      assert.strictEqual(verify({ body }).event.event, "job.completed")
    }
  })

  it("uses x-webhook-signature only when no header of webhook-signature is present", () => {
    for (const name of ["webhook-id", "webhook-timestamp", "webhook-signature"]) {
      assert.strictEqual(refusal(changed({ [name]: undefined }), new RegExp(`no ${name}\\.`)), "missing_header")
      assert.strictEqual(refusal(changed({ [name]: "" }), new RegExp(`no ${name}\\.`)), "missing_header")
      assert.strictEqual(refusal({ headers: { ...plainOnly(), [name]: "" } }), "missing_header")
    }
    assert.strictEqual(
      refusal({ headers: plainOnly(), requireTimestamp: true }, /covers no timestamp/),
      "missing_header",
    )
    assert.strictEqual(refusal({ requireTimestamp: true }), "accepted")
  })

  it.each<[string, string, Parameters<typeof verify>[0]]>([
    ["no headers", "missing_header", { headers: {} }],
    ["no headers at all", "missing_header", { headers: undefined }],
    ["an empty x-webhook-signature", "missing_header", { headers: { "x-webhook-signature": "" } }],
    ["a time in words", "invalid_header", changed({ "webhook-timestamp": "now" })],
    ["a time with a fraction", "invalid_header", changed({ "webhook-timestamp": `${at}.5` })],
    ["a negative time", "invalid_header", changed({ "webhook-timestamp": "-1" })],
    ["a time in milliseconds", "timestamp_too_new", changed({ "webhook-timestamp": `${at}00` })],
    ["a time of 400 digits", "invalid_header", changed({ "webhook-timestamp": "9".repeat(400) })],
    ["an id with a full stop", "invalid_header", changed({ "webhook-id": "a.b" })],
    ["a header twice", "invalid_header", { headers: { ...signed(), "Webhook-Id": "other" } }],
    ["a header with two values", "invalid_header", { headers: { ...signed(), "webhook-id": ["a", "b"] } }],
    ["20,000 signatures", "invalid_header", changed({ "webhook-signature": "v1,AAAA ".repeat(20_000) + given() })],
    ["an empty secret", "invalid_secret", { secret: "" }],
    ["an unset secret", "invalid_secret", { secret: undefined }],
    ["no secrets", "invalid_secret", { secret: [] }],
    ["a public key", "invalid_secret", { secret: "whpk_kM0NvXfpzQ4ENX5g2YPcZrEzF/uEGUlpFTIxxgJtFhg=" }],
    ["an empty secret among others", "invalid_secret", { secret: [secret, ""] }],
    ["a tolerance that is not a number", "invalid_tolerance", { toleranceSeconds: NaN }],
    ["a negative tolerance", "invalid_tolerance", { toleranceSeconds: -1 }],
    ["a parsed body", "invalid_body", { body: JSON.parse(body) }],
    ["no body", "invalid_body", { body: undefined }],
    ["a body that is not JSON", "invalid_body", { headers: signed([secret], "{"), body: "{" }],
    ["an empty body", "invalid_body", { headers: signed([secret], ""), body: "" }],
    ["a body that is not an object", "invalid_body", { headers: signed([secret], "[1]"), body: "[1]" }],
    ["a null body", "invalid_body", { headers: signed([secret], "null"), body: "null" }],
  ])("refuses %s", (_, code, options) => assert.strictEqual(refusal(options), code))

  it("imports nothing but Node's crypto", () => {
    const source = readFileSync(new URL("../../src/sdk/webhooks.ts", import.meta.url), "utf8")
    assert.deepStrictEqual(
      [...source.matchAll(/\bfrom "([^"]+)"|\bimport\(/g)].map(([, name]) => name),
      ["node:crypto"],
    )
  })
})
