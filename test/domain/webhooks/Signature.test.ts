import { assert, describe } from "@effect/vitest"
import { Cause, Effect, Exit, Layer, Redacted, Schema } from "effect"
import { createHmac } from "node:crypto"
import { readFileSync } from "node:fs"
import { Webhook } from "standardwebhooks"
import { type Signable, Signer, standardKey, userAgent } from "#src/domain/webhooks/Signatures.ts"
import { signatures } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { it } from "../../support/it.ts"

const layer = Layer.provide(Signer.layer, signatures)

const official = {
  secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
  deliveryId: "msg_p5jXN8AQM9LWM0D4loKWxJek",
  event: "job.completed",
  body: '{"test": 2432232314}',
  timestamp: 1614265330,
}

const sign = ({ secrets, ...attempt }: Signable & { readonly secrets: ReadonlyArray<string> }) =>
  Signer.use((signer) => signer.prepare(secrets.map((one) => Redacted.make(one)))).pipe(
    Effect.map((sign) => sign(attempt)),
    Effect.provide(layer),
  )

const now = () => Math.floor(Date.now() / 1000)
const whsec = (bytes: Uint8Array) => `whsec_${Buffer.from(bytes).toString("base64")}`
const KeyBytes = Schema.Uint8Array.check(Schema.isMinLength(1), Schema.isMaxLength(64))

describe("Signer", () => {
  it.effect("signs the official vector of Standard Webhooks, with no other headers", function* () {
    assert.deepStrictEqual(yield* sign(official), {
      "content-type": "application/json",
      "user-agent": userAgent,
      "x-webhook-signature": "80ec8a89ce3cd22133a1066caecb4d04fea7467657c8514d717ec42c38a5c94c",
      "x-event-type": "job.completed",
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    })
  })

  it("sends the package's version as its user agent", () => {
    const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"))
    assert.strictEqual(userAgent, `Gatehouse/${version}`)
  })

  it.effect(
    "also signs with the old secret while it lasts, and x-webhook-signature with the new one only",
    function* () {
      const secrets = ["the new one", ...official.secrets]
      const headers = yield* sign({ ...official, secrets })
      const alone = yield* sign({ ...official, secrets: ["the new one"] })
      assert.strictEqual(
        headers["webhook-signature"],
        `${alone["webhook-signature"]} v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=`,
      )
      assert.strictEqual(headers["x-webhook-signature"], alone["x-webhook-signature"])
    },
  )

  it.effect.prop("is verified by the standardwebhooks package", [KeyBytes, Schema.String], ([key, body]) =>
    Effect.gen(function* () {
      const headers = yield* sign({ ...official, secrets: ["old", whsec(key)], body, timestamp: now() })
      new Webhook(whsec(key)).verify(body, headers, { jsonParse: false })
    }),
  )

  it.effect.prop("signs the body's UTF-8 bytes with the secret's own characters", [Schema.String], ([body]) =>
    Effect.gen(function* () {
      const secret = "whsec_é" + body + "x"
      const headers = yield* sign({ ...official, secrets: [secret], body })
      const bytes = new TextEncoder().encode(body)
      const expected = createHmac("sha256", new TextEncoder().encode(secret)).update(bytes).digest("hex")
      assert.strictEqual(headers["x-webhook-signature"], expected)
    }),
  )

  it.effect("has no default secret: a missing one is a defect", function* () {
    const exit = yield* Effect.exit(sign({ ...official, secrets: [] }))
    assert.isTrue(Exit.isFailure(exit) && /has no secret/.test(Cause.pretty(exit.cause)))
  })
})

describe("standardKey", () => {
  it.prop("decodes the secret, padded or not", [KeyBytes], ([bytes]) => {
    assert.deepStrictEqual(Buffer.from(standardKey(whsec(bytes))), Buffer.from(bytes))
    assert.deepStrictEqual(Buffer.from(standardKey(whsec(bytes).replace(/=+$/, ""))), Buffer.from(bytes))
  })

  it.each([
    "plain",
    "QUJD",
    "whsec_",
    "whsec_=",
    "whsec_====",
    "whsec_A",
    "whsec_QQ=",
    "whsec_QUJD=",
    "whsec_QUJDRA=",
    "whsec_QU-_",
    "whsec_QUJD\n",
    "whsec_QU JD",
    "WHSEC_QUJD",
    "whsec_pässwörd",
  ])("uses all of %j", (secret) => {
    assert.strictEqual(standardKey(secret), secret)
  })
})
