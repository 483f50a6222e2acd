import { randomBytes } from "node:crypto"
import { der, oid, sequence } from "./certificate.ts"

export const pem = (label: string, bytes: Buffer) =>
  `-----BEGIN ${label}-----\n${bytes.toString("base64").replace(/.{64}(?=.)/g, "$&\n")}\n-----END ${label}-----\n`

const number = (bytes: Buffer) => der(0x02, Buffer.from([0]), bytes)
const randomNumber = (bits: number) => {
  const bytes = randomBytes(bits / 8)
  bytes[0]! |= 0x80
  bytes[bytes.length - 1]! |= 1
  return number(bytes)
}
const zero = der(0x02, Buffer.from([0]))
export const inPkcs8 = (algorithm: Buffer, key: Buffer) => pem("PRIVATE KEY", sequence(zero, algorithm, der(0x04, key)))
/** A private key of RSA with made-up numbers. */
export const madeUpRsa = (bits: number, exponentBits = bits) => {
  const halves = Array.from({ length: 5 }, () => randomNumber(bits / 2))
  const three = der(0x02, Buffer.from([3]))
  return sequence(zero, randomNumber(bits), three, randomNumber(exponentBits), ...halves)
}
export const rsa = sequence(oid("2a864886f70d010101"), der(0x05))
/** Parsing these computes their public part. */
export const madeUpDsa = (bits: number) =>
  inPkcs8(
    sequence(oid("2a8648ce380401"), sequence(randomNumber(bits), randomNumber(256), randomNumber(bits - 8))),
    randomNumber(bits - 8),
  )
export const madeUpDh = (bits: number) =>
  inPkcs8(
    sequence(oid("2a864886f70d010301"), sequence(randomNumber(bits), randomNumber(bits - 8))),
    randomNumber(bits - 8),
  )
