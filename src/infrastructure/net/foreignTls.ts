import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Redacted, Result } from "effect"
import { constants, createPrivateKey, hash, type KeyObject, sign, verify, X509Certificate } from "node:crypto"
import { isIP } from "node:net"
import { createSecureContext } from "node:tls"
import { buildConnector } from "undici"
import type { ClientIdentity } from "../../domain/webhooks/EndpointAuth.ts"

const canOffer = (ecdhCurve: string) =>
  Result.isSuccess(Result.try({ try: () => createSecureContext({ ecdhCurve }), catch: () => undefined }))

/**
 * TLS with every other host: receivers, token endpoints, documents, issuers of keys, mail servers, proxies. The main
 * thread computes what the host chooses, so only what is cheap at any choice is offered: TLS 1.3, and TLS 1.2 with
 * ECDHE. The server would choose the size of Diffie-Hellman over a finite field, and how often it negotiates again.
 */
export const foreignTls = {
  minVersion: "TLSv1.2",
  ciphers: [
    ...["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"],
    ...["ECDHE+AESGCM", "ECDHE+CHACHA20", "ECDHE+AES"],
  ].join(":"),
  // OpenSSL before 3.5 does not know the first.
  ecdhCurve: ["X25519MLKEM768:X25519:P-256:P-384:P-521", "X25519:P-256:P-384:P-521"].find(canOffer)!,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
} as const

/** The name of a host in SNI and in certificates: without a final dot (RFC 6066, section 3). None for an address. */
export const tlsName = (hostname: string) => (isIP(hostname) === 0 ? hostname.replace(/\.$/, "") : "")

const connectorWith = (options: buildConnector.BuildOptions): buildConnector.connector => {
  // No time-out here: a request has one deadline. HTTP/1.1 only, so that a connection serves one request at a time.
  const connect = buildConnector({ ...foreignTls, ...options, allowH2: false, timeout: 0 })
  return (target, callback) => connect({ ...target, servername: tlsName(target.hostname) }, callback)
}

/** Connects to the origin of an undici client, and begins TLS if that is https. */
export const connectForeign = connectorWith({})

/** The same with a client certificate. It shares no sessions with other connections. */
export const connectForeignAs = ({ cert, key }: CheckedIdentity) => connectorWith({ cert, key, maxCachedSessions: 0 })

/** The client for hosts that the operator names. Each of a host's addresses gets half of a fetch's deadline. */
export const operatorHttp = NodeHttpClient.layerUndiciOptions({
  connect: { ...foreignTls, autoSelectFamilyAttemptTimeout: 2_500 },
})

/** A certificate and its own private key, both in PEM, of a kind that costs little. */
interface CheckedIdentity {
  readonly cert: string
  readonly key: string
  readonly leaf: X509Certificate
  readonly privateKey: KeyObject
}

/** RSA of 4,096 bits has 2,375 bytes in PKCS#8. */
const maxKeyBytes = 2_400
const maxCertificates = 8

const sequence = "^30(?:[0-7].|81..|82....)"
/**
 * The private keys that are parsed, by the label of their PEM and the beginning of their DER in hexadecimal (RFC 5958,
 * 8017, 5915). Of a key for DSA or Diffie-Hellman OpenSSL would compute the public part, which can take seconds.
 */
const keyForms: Readonly<Record<string, { readonly type: "pkcs8" | "pkcs1" | "sec1"; readonly beginning: RegExp }>> = {
  "PRIVATE KEY": {
    type: "pkcs8",
    beginning: new RegExp(
      `${sequence}02010[01](?:30(?:0d06092a864886f70d0101010500|0b06092a864886f70d010101)` + // RSA
        "|301306072a8648ce3d020106082a8648ce3d030107" + // P-256
        "|301006072a8648ce3d020106052b8104002[23]" + // P-384, P-521
        "|300506032b6570)", // Ed25519
    ),
  },
  "RSA PRIVATE KEY": { type: "pkcs1", beginning: new RegExp(`${sequence}02010002`) },
  "EC PRIVATE KEY": {
    type: "sec1",
    beginning: new RegExp(
      `${sequence}020101(?:0420.{64}a00a06082a8648ce3d030107|0430.{96}a00706052b81040022|0442.{132}a00706052b81040023)`,
    ),
  },
}

const blocksOf = (pem: string) =>
  [...pem.matchAll(/-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \1-----/g)].map(([, label, base64]) => ({
    label: label!,
    der: Buffer.from(base64!, "base64"),
  }))

const isCheapRsa = (key: KeyObject) => {
  const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails!
  const { d, n } = key.export({ format: "jwk" })
  return modulusLength >= 2_048 && modulusLength <= 4_096 && publicExponent < 2n ** 32n && d!.length <= n!.length
}

/** Parses a private key if it is of a kind that costs little; throws or returns `undefined` otherwise. */
const parseKey = (pem: string) => {
  // `openssl ecparam -genkey` writes the name of the curve before the key.
  const [block, ...others] = blocksOf(pem).filter(({ label }) => label !== "EC PARAMETERS")
  if (block === undefined || others.length > 0 || !Object.hasOwn(keyForms, block.label)) return undefined
  const { beginning, type } = keyForms[block.label]!
  if (block.der.length > maxKeyBytes || !beginning.test(block.der.toString("hex", 0, 100))) return undefined
  const key = createPrivateKey({ key: block.der, format: "der", type })
  return key.asymmetricKeyType !== "rsa" || isCheapRsa(key) ? key : undefined
}

/** What `read` returns; the fault if nothing, or it throws. OpenSSL's messages contain lines of its source. */
const readOr = <A>(fault: string, read: () => A | undefined): Result.Result<A, string> =>
  Result.flatMap(Result.try({ try: read, catch: () => fault }), (value) =>
    value === undefined ? Result.fail(fault) : Result.succeed(value),
  )

const keyFault =
  "private_key must be one private key in PEM that is not encrypted: RSA of 2,048 to 4,096 bits, P-256, P-384, P-521 " +
  "or Ed25519."
const certificateFault = `certificate must be the client's certificate in PEM, and at most ${maxCertificates - 1} intermediate ones after it.`
const mismatch = "certificate and private_key must be a certificate and its own private key."

/** Reads a client's certificate and private key within their bounds. A fault begins with the field. */
export const readIdentity = (identity: ClientIdentity): Result.Result<CheckedIdentity, string> =>
  Result.gen(function* () {
    const [cert, key] = [identity.certificate, Redacted.value(identity.privateKey)]
    const privateKey = yield* readOr(keyFault, () => parseKey(key))
    const leaf = yield* readOr(certificateFault, () => {
      const blocks = blocksOf(cert)
      const areCertificates = blocks.length <= maxCertificates && blocks.every(({ label }) => label === "CERTIFICATE")
      return areCertificates ? new X509Certificate(cert) : undefined
    })
    yield* readOr(mismatch, () => leaf.checkPrivateKey(privateKey) || undefined)
    yield* readOr(certificateFault, () => createSecureContext({ cert, key }))
    return { cert, key, leaf, privateKey }
  })

/**
 * Whether a private key is the one of its certificate. `checkPrivateKey` compares public parts, which a made-up key has
 * too; only a signature proves it. It is made in a thread.
 */
export const proveIdentity = ({ leaf, privateKey }: CheckedIdentity, done: (fault: string | undefined) => void) => {
  const [digest, message] = [privateKey.asymmetricKeyType === "ed25519" ? null : "sha256", Buffer.from("Gatehouse")]
  sign(digest, message, privateKey, (error, signature) =>
    done(error === null && verify(digest, message, leaf.publicKey, signature) ? undefined : mismatch),
  )
}

/** What no other client has: a hash of the certificate and the private key. */
export const identityHash = ({ certificate, privateKey }: ClientIdentity) =>
  hash("sha256", `${certificate}\0${Redacted.value(privateKey)}`, "base64")
