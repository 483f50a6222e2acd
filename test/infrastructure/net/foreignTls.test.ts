import { assert, describe } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, Result } from "effect"
import { HttpClient } from "effect/http"
import { generateKeyPairSync, type KeyPairKeyObjectResult } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import type { TLSSocket } from "node:tls"
import { MailSender } from "#src/domain/alerts/tellAlert.ts"
import * as Mail from "#src/infrastructure/alerts/MailSender.ts"
import { egressProxyOf } from "#src/infrastructure/net/EgressProxy.ts"
import { foreignTls, operatorHttp, proveIdentity, readIdentity } from "#src/infrastructure/net/foreignTls.ts"
import { makeAuthority, oid, selfSigned, trusted } from "../../support/certificate.ts"
import { makeConnectProxy } from "../../support/connectProxy.ts"
import { it } from "../../support/it.ts"
import { inPkcs8, madeUpDh, madeUpDsa, madeUpRsa, pem, rsa } from "../../support/madeUpKeys.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { isKind, safeClient } from "../../support/safeHttp.ts"

/** Promise (Authorized requests) */

const rsaKeys = generateKeyPairSync("rsa", { modulusLength: 2048 })
const pkcs8 = ({ privateKey }: KeyPairKeyObjectResult) => privateKey.export({ type: "pkcs8", format: "pem" }).toString()

const check = (certificate: string, privateKey: string) =>
  Effect.flatMap(Effect.fromResult(readIdentity({ certificate, privateKey: Redacted.make(privateKey) })), (identity) =>
    Effect.callback<void, string>((resume) =>
      proveIdentity(identity, (fault) => resume(fault === undefined ? Effect.void : Effect.fail(fault))),
    ),
  )
const cpuOf = (work: () => unknown) => {
  const { user } = process.cpuUsage()
  work()
  return process.cpuUsage().user - user
}

describe("A client certificate", () => {
  const kinds: ReadonlyArray<readonly [string, KeyPairKeyObjectResult]> = [
    ["RSA of 2,048 bits", rsaKeys],
    ["RSA of 4,096 bits", generateKeyPairSync("rsa", { modulusLength: 4096 })],
    ["P-256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
    ["P-384", generateKeyPairSync("ec", { namedCurve: "P-384" })],
    ["P-521", generateKeyPairSync("ec", { namedCurve: "P-521" })],
    ["Ed25519", generateKeyPairSync("ed25519")],
  ]
  it.live.each(kinds)("is accepted with a key of %s, and shown", function* ([, keys]) {
    const authority = makeAuthority("Test")
    const { cert, key } = authority.issueTo(keys, "client")
    const receiver = yield* makeReceiver({
      host: "localhost",
      tls: { ...(yield* trusted({ names: ["localhost"] })), ca: authority.cert },
    })
    yield* check(cert, key)
    const { post } = yield* safeClient()
    const identity = { certificate: cert, privateKey: Redacted.make(key) }
    assert.strictEqual((yield* post(receiver.url, { identity })).status, 200)
  })

  it.live("is accepted with its key in each usual format", function* () {
    yield* check(
      selfSigned({ names: ["a"], keys: rsaKeys }).cert,
      rsaKeys.privateKey.export({ type: "pkcs1", format: "pem" }).toString(),
    )
    for (const [, keys] of kinds.filter(([kind]) => kind.startsWith("P-"))) {
      const sec1 = keys.privateKey.export({ type: "sec1", format: "pem" }).toString()
      const { cert } = selfSigned({ names: ["a"], keys })
      yield* check(cert, sec1)
      // As openssl ecparam -genkey writes it.
      yield* check(cert, `${pem("EC PARAMETERS", oid("2a8648ce3d030107"))}${sec1}`)
      yield* check(cert, sec1.replaceAll("\n", "\r\n"))
    }
  })

  const { cert } = selfSigned({ names: ["a"], keys: rsaKeys })
  const key = pkcs8(rsaKeys)
  const passphrase = { cipher: "aes-256-cbc", passphrase: "secret" } as const
  const refused: ReadonlyArray<readonly [string, string]> = [
    ["RSA of 1,024 bits", pkcs8(generateKeyPairSync("rsa", { modulusLength: 1024 }))],
    ["RSA of 16,384 bits", inPkcs8(rsa, madeUpRsa(16_384))],
    ["RSA of 16,384 bits, as PKCS#1", pem("RSA PRIVATE KEY", madeUpRsa(16_384))],
    ["RSA of 4,104 bits", inPkcs8(rsa, madeUpRsa(4_104))],
    ["RSA with a long exponent", inPkcs8(rsa, madeUpRsa(2_048, 8_192))],
    ["RSA for PSS alone", pkcs8(generateKeyPairSync("rsa-pss", { modulusLength: 2048 }))],
    ["DSA", madeUpDsa(24_000)],
    ["DSA in the place of RSA", madeUpDsa(24_000).replaceAll("PRIVATE", "RSA PRIVATE")],
    ["DSA in the place of EC", madeUpDsa(24_000).replaceAll("PRIVATE", "EC PRIVATE")],
    ["DSA, by its own label", madeUpDsa(24_000).replaceAll("PRIVATE", "DSA PRIVATE")],
    ["Diffie-Hellman", madeUpDh(24_000)],
    ["secp256k1", pkcs8(generateKeyPairSync("ec", { namedCurve: "secp256k1" }))],
    ["explicit parameters", pkcs8(generateKeyPairSync("ec", { namedCurve: "P-256", paramEncoding: "explicit" }))],
    ["Ed448", pkcs8(generateKeyPairSync("ed448"))],
    ["X25519", pkcs8(generateKeyPairSync("x25519"))],
    ["a passphrase", rsaKeys.privateKey.export({ type: "pkcs8", format: "pem", ...passphrase }).toString()],
    ["a passphrase, as PKCS#1", rsaKeys.privateKey.export({ type: "pkcs1", format: "pem", ...passphrase }).toString()],
    ["a second key", key + key],
    ["a certificate in its place", cert],
    ["garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"],
  ]
  it.effect.each(refused)("is refused with %s for its key, before dear work", function* ([, one]) {
    assert.match(yield* Effect.flip(check(cert, one)), /^private_key must be one private key in PEM that is not/)
    const plain = cpuOf(() =>
      Array.from({ length: 20 }, () => readIdentity({ certificate: cert, privateKey: Redacted.make(key) })),
    )
    const costly = cpuOf(() => readIdentity({ certificate: cert, privateKey: Redacted.make(one) }))
    assert.isBelow(costly, plain + 20_000)
  })

  it.live("is refused with the key of another, even if that names the certificate's public part", function* () {
    const mismatch = "certificate and private_key must be a certificate and its own private key."
    const p256 = generateKeyPairSync("ec", { namedCurve: "P-256" })
    assert.strictEqual(yield* Effect.flip(check(cert, pkcs8(p256))), mismatch)
    assert.strictEqual(yield* Effect.flip(check(selfSigned({ names: ["a"], keys: p256 }).cert, key)), mismatch)
    // The private number of P-256 begins at byte 36.
    const bytes = p256.privateKey.export({ type: "pkcs8", format: "der" })
    bytes.fill(1, 40, 60)
    const madeUp = pem("PRIVATE KEY", bytes)
    const { cert: its } = selfSigned({ names: ["a"], keys: p256 })
    assert.isTrue(Result.isSuccess(readIdentity({ certificate: its, privateKey: Redacted.make(madeUp) })))
    assert.strictEqual(yield* Effect.flip(check(its, madeUp)), mismatch)
  })

  it.effect.each([
    ["nine certificates", cert.repeat(9)],
    ["a private key beside it", cert + key],
    ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"],
  ] as const)("is refused as %s", ([, one]) =>
    Effect.gen(function* () {
      assert.match(yield* Effect.flip(check(one, key)), /^certificate must be the client's certificate in PEM, and at/)
      yield* check(cert + cert, key)
    }),
  )
})

/** Servers whose choice of arithmetic costs the client much. */
const costly = {
  "DHE with TLS 1.2": { maxVersion: "TLSv1.2", ciphers: "DHE-RSA-AES128-GCM-SHA256", dhparam: "auto" },
  "the key of the certificate, with TLS 1.2": { maxVersion: "TLSv1.2", ciphers: "AES128-GCM-SHA256" },
  "a group over a finite field, with TLS 1.3": { ecdhCurve: "ffdhe2048" },
  "a group of another kind": { ecdhCurve: "X448" },
} as const

describe("TLS with foreign hosts", () => {
  const rsaServer = trusted({ names: ["localhost", "hooks.test"], keys: rsaKeys })

  it.live.each(Object.entries(costly))("refuses a server that wants %s, whoever calls it", function* ([, choice]) {
    const tls = { ...(yield* rsaServer), ...choice }
    const receiver = yield* makeReceiver({ host: "localhost", tls })
    const { fails } = yield* safeClient()
    const error = yield* fails(receiver.url)
    isKind(error, "tls")
    assert.match(error.message, /ALERT_HANDSHAKE_FAILURE/)
    const proxy = yield* makeConnectProxy()
    const proxied = yield* safeClient({ egressProxy: egressProxyOf(proxy.url) })
    isKind(yield* proxied.fails(receiver.url), "tls")
    const secureProxy = yield* makeConnectProxy({ tls })
    const behind = yield* safeClient({ egressProxy: egressProxyOf(secureProxy.url) })
    assert.include((yield* behind.fails("https://hooks.test/")).message, "The connection to the egress proxy failed")
    const client = Context.get(yield* Layer.build(operatorHttp), HttpClient.HttpClient)
    yield* Effect.flip(client.get(receiver.url))
    const mail = Context.get(yield* Layer.build(Mail.layer({ allowPrivateNetworks: true })), MailSender)
    const url = Redacted.make(`smtps://localhost:${receiver.port}?from=a@b.test&to=c@d.test`)
    const fault = yield* mail.send({ url, from: "a@b.test", to: ["c@d.test"], subject: "s", text: "t" })
    assert.include(fault!, "The mail server did not take the e-mail (E")
    assert.strictEqual(receiver.received.length, 0)
  })

  it.live.each([
    { maxVersion: "TLSv1.2" },
    { maxVersion: "TLSv1.2", ciphers: "ECDHE-RSA-AES128-SHA256" },
    { ecdhCurve: "P-521" },
    {},
  ] as const)("calls a server with %o", (choice) =>
    Effect.gen(function* () {
      const receiver = yield* makeReceiver({ host: "localhost", tls: { ...(yield* rsaServer), ...choice } })
      const { post } = yield* safeClient()
      assert.strictEqual((yield* post(receiver.url)).status, 200)
      const client = Context.get(yield* Layer.build(operatorHttp), HttpClient.HttpClient)
      assert.strictEqual((yield* client.get(receiver.url)).status, 200)
    }),
  )

  it.live("does not negotiate again", function* () {
    const receiver = yield* makeReceiver({ host: "localhost", tls: { ...(yield* rsaServer), maxVersion: "TLSv1.2" } })
    let again = 0
    receiver.behave(({ socket }) => {
      const { renegotiate } = socket as TLSSocket
      renegotiate.call(socket, {}, (error) => void (error === null && again++))
      return "hang"
    })
    const { fails } = yield* safeClient()
    yield* fails(receiver.url)
    assert.strictEqual(again, 0)
  })

  it("is in one file of the sources", () => {
    const homes = {
      "infrastructure/net/foreignTls.ts": "the home",
      "infrastructure/net/connector.ts": "a client for CONNECT, with the home's connector",
      "infrastructure/net/SafeHttp.ts": "clients with the connector of connector.ts",
      "infrastructure/net/connectionFault.ts": "errors alone",
      "infrastructure/database/DatabaseUrl.ts": "the operator's PostgreSQL",
    }
    const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name))
    const found = files.filter((name) =>
      /from "(undici|node:tls|node:https|node:http2|@effect\/platform-node\/(NodeHttpClient|Undici))"|layerUndici/.test(
        readFileSync(`src/${name}`, "utf8"),
      ),
    )
    assert.deepStrictEqual(found.sort(), Object.keys(homes).sort())
    assert.isDefined(foreignTls.ciphers)
  })
})
