import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { Effect, Layer, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import { Webhook } from "standardwebhooks"
import { Signer } from "#src/domain/webhooks/Signatures.ts"
import { Ed25519, seedBytes } from "#src/domain/Ed25519.ts"
import { signatures } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { verifyWebhook, WebhookVerificationError } from "#src/sdk/webhooks.ts"

const at = 1614265330
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const body = '{"event":"job.completed","job_id":"1","nonce":"n","result":"✓ é 😀"}'
const deliveryId = "01KAF8ZJ4V2M6T8Q0R1S2T3V4W"

const signed = (
  secrets: ReadonlyArray<string> = [secret],
  text = body,
  signingKeys: ReadonlyArray<string> = [],
): Record<string, string> =>
  Effect.runSync(
    Signer.use((signer) =>
      signer.prepare(
        secrets.map((one) => Redacted.make(one)),
        signingKeys.map((one) => Redacted.make(one)),
      ),
    ).pipe(
      Effect.map((sign) => sign({ deliveryId, event: "job.completed", body: text, timestamp: at })),
      Effect.provide(Layer.provide(Signer.layer, signatures)),
    ),
  )

/** A key pair as the service makes it. */
const keyPair = () => {
  const { privateKey, publicKey } = Effect.runSync(
    Effect.map(Ed25519, ({ keyPair }) => keyPair(randomBytes(seedBytes))).pipe(Effect.provide(signatures)),
  )
  return { privateKey, publicKey: `whpk_${publicKey}` }
}

const refusal = async (verified: Promise<unknown>) => {
  try {
    await verified
  } catch (error) {
    expect(error).toBeInstanceOf(WebhookVerificationError)
    expect(String((error as Error).stack)).not.toContain("MfKQ9r8")
    return (error as WebhookVerificationError).code
  }
  return "accepted"
}

beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now: at * 1000 }))
afterEach(() => void vi.useRealTimers())

describe("gatehouse-webhooks", () => {
  // docs/webhooks.md says so of each library. Where this fails, they have learned it: say that there.
  it("verifies v1a, which the library of Standard Webhooks does not", async () => {
    const { privateKey, publicKey } = keyPair()
    const both = signed([secret], body, [privateKey])
    const only = {
      ...both,
      "webhook-signature": both["webhook-signature"]!.split(" ").find((one) => one.startsWith("v1a,"))!,
    }
    expect((await verifyWebhook({ headers: only, body }, publicKey)).deliveryId).toBe(deliveryId)
    expect(() => new Webhook(publicKey).verify(body, only)).toThrow("Base64Coder")
    expect(() => new Webhook(secret).verify(body, only)).toThrow("No matching signature found")
    // It skips v1a beside its own.
    expect(new Webhook(secret).verify(body, both)).toEqual(JSON.parse(body))
  })

  it("accepts what the service signs, in a Request, in Node's headers, and in bytes", async () => {
    const whole = { event: JSON.parse(body) as unknown, deliveryId, timestamp: new Date(at * 1000) }
    const request = new Request("https://example.com", { method: "POST", headers: signed(), body })
    expect(await verifyWebhook(request, secret)).toEqual(whole)
    for (const bytes of [body, Buffer.from(body), new TextEncoder().encode(body).buffer]) {
      expect(await verifyWebhook({ headers: signed(), body: bytes }, secret)).toEqual(whole)
    }
    const upper = Object.fromEntries(Object.entries(signed()).map(([name, value]) => [name.toUpperCase(), value]))
    expect(await verifyWebhook({ headers: upper, body }, secret)).toEqual(whole)
  })

  it("accepts the official vector, and what the reference library signs, with every form of secret", async () => {
    const headers = {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": String(at),
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    expect((await verifyWebhook({ headers, body: '{"test": 2432232314}' }, secret)).event).toEqual({ test: 2432232314 })
    const signature = new Webhook(secret).sign("msg_1", new Date(at * 1000), body)
    const theirs = { "webhook-id": "msg_1", "webhook-timestamp": String(at), "webhook-signature": signature }
    expect(await refusal(verifyWebhook({ headers: theirs, body }, secret))).toBe("accepted")
    for (const one of ["plain secret", "whsec_not base64", "whsec_", "é😀", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"]) {
      expect(await refusal(verifyWebhook({ headers: signed([one]), body }, one)), one).toBe("accepted")
    }
  })

  it("writes the numbers of an event again as they came", async () => {
    const text = '{"id":9007199254740993,"in":[1.0,-0,1e-400]}'
    const { event } = await verifyWebhook({ headers: signed([secret], text), body: text }, secret)
    expect(event).toEqual({ id: Number("9007199254740993"), in: [1, -0, 0] })
    expect(JSON.stringify({ event })).toBe(`{"event":${text}}`)
  })

  it("accepts both secrets while one replaces the other", async () => {
    expect(await refusal(verifyWebhook({ headers: signed(["new", secret]), body }, secret))).toBe("accepted")
    expect(await refusal(verifyWebhook({ headers: signed(), body }, ["new", secret]))).toBe("accepted")
  })

  it("verifies Ed25519 signatures with a public key, also while the key is rotated", async () => {
    const [old, fresh] = [keyPair(), keyPair()]
    const headers = signed([secret], body, [fresh.privateKey, old.privateKey])
    for (const key of [fresh.publicKey, old.publicKey, secret, [keyPair().publicKey, old.publicKey]]) {
      expect(await refusal(verifyWebhook({ headers, body }, key))).toBe("accepted")
    }
    expect(await refusal(verifyWebhook({ headers, body }, keyPair().publicKey))).toBe("signature_mismatch")
    expect(await refusal(verifyWebhook({ headers, body: `${body} ` }, old.publicKey))).toBe("signature_mismatch")
  })

  it("never uses a public key for HMAC", async () => {
    const { publicKey } = keyPair()
    const forgeries = [publicKey, publicKey.replace("whpk_", "whsec_")].flatMap((forged) => {
      const signature = signed([forged])["webhook-signature"]!
      return [signature, signature.replace("v1,", "v1a,")]
    })
    for (const forgery of forgeries) {
      const headers = { ...signed(), "webhook-signature": forgery }
      expect(await refusal(verifyWebhook({ headers, body }, publicKey)), forgery).toBe("signature_mismatch")
    }
  })

  it("says what is wrong with a public key, or that its signature is absent", async () => {
    await expect(verifyWebhook({ headers: signed(), body }, keyPair().publicKey)).rejects.toThrow(/no v1a signature/)
    for (const key of ["whpk_", "whpk_AAAA", `${keyPair().publicKey}AAAA`, "whpk_not base64"]) {
      expect(await refusal(verifyWebhook({ headers: signed([key]), body }, key)), key).toBe("invalid_secret")
    }
  })

  it("refuses everything else, with the reason", async () => {
    const headers = signed()
    const without = (name: string) => Object.fromEntries(Object.entries(headers).filter(([one]) => one !== name))
    const cases: ReadonlyArray<readonly [string, Parameters<typeof verifyWebhook>[0], unknown?, number?]> = [
      ["signature_mismatch", { headers, body: `${body} ` }],
      ["signature_mismatch", { headers, body }, "another"],
      ["signature_mismatch", { headers: { ...headers, "webhook-id": "other" }, body }],
      ["signature_mismatch", { headers: { ...headers, "webhook-signature": "v1,!!" }, body }],
      [
        "signature_mismatch",
        { headers: { ...headers, "webhook-signature": headers["webhook-signature"]!.slice(3) }, body },
      ],
      ["missing_header", { headers: without("webhook-id"), body }],
      ["missing_header", { headers: without("webhook-timestamp"), body }],
      ["missing_header", { headers: without("webhook-signature"), body }],
      ["missing_header", { headers: {}, body }],
      ["invalid_header", { headers: { ...headers, "webhook-id": "a.b" }, body }],
      ["invalid_header", { headers: { ...headers, "webhook-timestamp": "now" }, body }],
      ["invalid_header", { headers: { ...headers, "webhook-signature": "v1,a ".repeat(20) }, body }],
      ["invalid_header", { headers: { ...headers, "webhook-id": ["a", "b"] }, body }],
      ["timestamp_too_old", { headers: { ...headers, "webhook-timestamp": String(at - 301) }, body }],
      ["timestamp_too_new", { headers: { ...headers, "webhook-timestamp": String(at + 301) }, body }],
      ["timestamp_too_old", { headers: { ...headers, "webhook-timestamp": String(at - 1) }, body }, secret, 0],
      ["invalid_tolerance", { headers, body }, secret, Number.NaN],
      ["invalid_secret", { headers, body }, ""],
      ["invalid_secret", { headers, body }, []],
      ["invalid_secret", { headers, body }, undefined],
      ["invalid_body", { headers, body: JSON.parse(body) as object }],
      ["invalid_body", { headers: signed([secret], "[]"), body: "[]" }],
      ["invalid_body", { headers: signed([secret], "{"), body: "{" }],
    ]
    for (const [code, request, own, toleranceSeconds = 300] of cases) {
      const key = (own === undefined && code !== "invalid_secret" ? secret : own) as string
      expect(await refusal(verifyWebhook(request, key, { toleranceSeconds })), code).toBe(code)
    }
  })
})
