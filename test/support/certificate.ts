import { Effect } from "effect"
import { createHash, generateKeyPairSync, type KeyObject, type KeyPairKeyObjectResult, sign } from "node:crypto"
import { getCACertificates, setDefaultCACertificates } from "node:tls"

/** A tag, the length and the content, in the distinguished encoding of ASN.1 (X.690). */
export const der = (tag: number, ...parts: ReadonlyArray<Uint8Array | string>): Buffer => {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part as Uint8Array)))
  const length =
    content.length < 128 ? [content.length] : [0x82, Math.floor(content.length / 256), content.length % 256]
  return Buffer.concat([Buffer.from([tag, ...length]), content])
}
export const sequence = (...parts: ReadonlyArray<Uint8Array>) => der(0x30, ...parts)
export const oid = (hex: string) => der(0x06, Buffer.from(hex, "hex"))
const ecdsaWithSha256 = sequence(oid("2a8648ce3d040302"))
const rsaWithSha256 = sequence(oid("2a864886f70d01010b"), der(0x05))
const time = (text: string) => der(0x18, text)
const extension = (id: Uint8Array, value: Uint8Array) => sequence(id, der(0x04, value))

export interface CertificateOptions {
  /** The names of the certificate. The first is its subject. */
  readonly names: ReadonlyArray<string>
  /** The end of its validity, as in `20991231235959Z`. */
  readonly until?: string
  /** The keys: of RSA or P-256 if the certificate is self-signed. Default: new ones on P-256. */
  readonly keys?: KeyPairKeyObjectResult
}

interface Issuer {
  readonly subject: Uint8Array
  readonly privateKey: KeyObject
}

const makeKeys = () => generateKeyPairSync("ec", { namedCurve: "P-256" })

/** A certificate (RFC 5280, version 3) and its key, both in PEM. Without an issuer it is self-signed. */
const certificate = (
  { keys = makeKeys(), names, until = "20991231235959Z" }: CertificateOptions,
  isAuthority: boolean,
  issuer?: Issuer,
) => {
  const { privateKey, publicKey } = keys
  const signer = issuer?.privateKey ?? privateKey
  const algorithm = signer.asymmetricKeyType === "rsa" ? rsaWithSha256 : ecdsaWithSha256
  const subject = sequence(der(0x31, sequence(oid("550403"), der(0x0c, names[0]!))))
  const alternatives = extension(oid("551d11"), sequence(...names.map((each) => der(0x82, each))))
  const authority = extension(oid("551d13"), sequence(der(0x01, Buffer.from([0xff]))))
  const publicInfo = publicKey.export({ type: "spki", format: "der" })
  const serial = createHash("sha256").update(publicInfo).digest().subarray(0, 8)
  serial[0] = (serial[0]! & 0x7f) | 1
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, serial),
    algorithm,
    issuer?.subject ?? subject,
    sequence(time("20200101000000Z"), time(until)),
    subject,
    publicInfo,
    der(0xa3, sequence(isAuthority ? authority : alternatives)),
  )
  const signature = sign("sha256", body, signer)
  const signed = sequence(body, algorithm, der(0x03, Buffer.from([0]), signature))
  const lines = signed.toString("base64").replace(/.{64}(?=.)/g, "$&\n")
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    issuer: { subject, privateKey },
  }
}

/** A self-signed certificate and its key. */
export const selfSigned = (options: CertificateOptions) => certificate(options, false)

/** A certificate authority of a test: its certificate, and how it issues others. */
export const makeAuthority = (name: string) => {
  const { cert, issuer } = certificate({ names: [name] }, true)
  return {
    cert,
    issue: (...names: ReadonlyArray<string>) => certificate({ names }, false, issuer),
    issueTo: (keys: KeyPairKeyObjectResult, name: string) => certificate({ names: [name], keys }, false, issuer),
  }
}

/** A self-signed certificate that this process trusts until the scope closes. */
export const trusted = (options: CertificateOptions) => {
  const tls = selfSigned(options)
  const before = getCACertificates("default")
  return Effect.acquireRelease(
    Effect.sync(() => {
      setDefaultCACertificates([...before, tls.cert])
      return tls
    }),
    () => Effect.sync(() => setDefaultCACertificates(before)),
  )
}
