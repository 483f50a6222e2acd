import { Schema } from "effect"
import { Id, Name, Timestamp } from "../Schemas.ts"

/** The prefix of every key. People and secret scanners recognize a key by it. */
export const keyPrefix = "svc_"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const randomLength = 36
const checksumLength = 6
/** The length of an API key, in characters. */
export const apiKeyLength = keyPrefix.length + randomLength + checksumLength
const shape = new RegExp(`^${keyPrefix}[0-9A-Za-z]{${randomLength + checksumLength}}$`)

const crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n
  for (let bit = 0; bit < 8; bit++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1
  return c
})

/** CRC-32 (IEEE 802.3) of ASCII text. */
const crc32 = (text: string) => {
  let crc = 0xffffffff
  for (let i = 0; i < text.length; i++) crc = crcTable[(crc ^ text.charCodeAt(i)) & 0xff]! ^ (crc >>> 8)
  return (crc ^ 0xffffffff) >>> 0
}

/** The CRC-32 of the random part as six base62 digits, the most significant one first. */
const checksum = (random: string) => {
  let digits = ""
  for (let rest = crc32(random), i = 0; i < checksumLength; i++, rest = Math.floor(rest / 62)) {
    digits = alphabet[rest % 62]! + digits
  }
  return digits
}

/**
 * Makes a key from random bytes: `svc_`, 36 base62 characters and a checksum of 6. Skips bytes of 248 or more, so that
 * every character is equally likely. Returns `undefined` when too few bytes remain.
 */
export const fromRandomBytes = (bytes: Uint8Array): string | undefined => {
  let random = ""
  for (const byte of bytes) {
    if (byte < 248 && random.length < randomLength) random += alphabet[byte % 62]!
  }
  return random.length === randomLength ? keyPrefix + random + checksum(random) : undefined
}

/** Whether a text has the form and the checksum of a key. A mistyped key needs no query. */
export const isWellFormed = (key: string): boolean =>
  shape.test(key) && checksum(key.slice(keyPrefix.length, -checksumLength)) === key.slice(-checksumLength)

/** The visible part of a key: `svc_` and eight characters. */
export const displayPrefix = (key: string) => key.slice(0, keyPrefix.length + 8)

const KeyName = Schema.String.annotate({ examples: ["ci"] })
const Prefix = Schema.String.annotate({
  description: "The first 12 characters of the key.",
  examples: ["svc_hE4kPz9Q"],
})
const exampleKey = "svc_hE4kPz9QmT2vX7cRw1LsNd8YbUa5JgFo6iKe2eUdYl"

const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` }))

/** The rate limit of a key: `limit` validations at once, and `limit` more in every `window` seconds. */
export const RateLimit = Schema.Struct({
  limit: whole(1, 1_000_000).annotate({ description: "The number of validations in a window.", examples: [600] }),
  window: whole(1, 86_400).annotate({ description: "The length of the window, in seconds.", examples: [60] }),
}).annotate({ identifier: "RateLimit" })
export interface RateLimit extends Schema.Schema.Type<typeof RateLimit> {}

/** A key without its secret. */
export const ApiKey = Schema.Struct({
  id: Id,
  name: KeyName,
  prefix: Prefix,
  projectId: Schema.NullOr(Id).annotate({ description: "The project of the key. null: it is a key of the whole org." }),
  createdAt: Timestamp,
  expiresAt: Schema.NullOr(Timestamp),
  rateLimit: Schema.NullOr(RateLimit).annotate({ description: "The rate limit of the key. null: it has no limit." }),
  lastUsedAt: Schema.NullOr(Timestamp).annotate({
    description: "The last use of the key. It is written some seconds later. null: the key was never used.",
  }),
}).annotate({ identifier: "ApiKey" })
export interface ApiKey extends Schema.Schema.Type<typeof ApiKey> {}

/** A new key with its secret, which is shown only once. */
export const CreatedApiKey = Schema.Struct({
  id: Id,
  name: KeyName,
  prefix: Prefix,
  key: Schema.String.annotate({
    description: "The full key. This is the only response that contains it; the service does not store it.",
    examples: [exampleKey],
  }),
}).annotate({ identifier: "CreatedApiKey" })
export interface CreatedApiKey extends Schema.Schema.Type<typeof CreatedApiKey> {}

const newKey = {
  name: Name.annotate({ description: "A label that helps people recognize the key.", examples: ["ci"] }),
  expiresAt: Schema.optionalKey(
    Timestamp.annotate({ description: "When the key expires; a time in the future. Absent: never." }),
  ),
  rateLimit: Schema.optionalKey(RateLimit).annotate({
    description: "How often the key may be validated, counted by each replica. Absent: no limit.",
  }),
}
export const CreateProjectKey = Schema.Struct({ ...newKey, projectId: Id }).annotate({ identifier: "CreateProjectKey" })
export const CreateOrgKey = Schema.Struct(newKey).annotate({ identifier: "CreateOrgKey" })

/** The default overlap of a rotation: one day. */
export const defaultOverlapSeconds = 86_400

export const RotateKey = Schema.Struct({
  overlapSeconds: Schema.optionalKey(
    whole(0, 604_800).annotate({
      description: "How long the old key stays valid, in seconds. Default: 86400. 0: the old key expires at once.",
      examples: [3600],
    }),
  ),
  expiresAt: Schema.optionalKey(Schema.NullOr(Timestamp)).annotate({
    description:
      "When the new key expires; a time in the future. null: never. Absent: when the old key would have expired.",
    examples: [null],
  }),
}).annotate({ identifier: "RotateKey" })

export const ValidateKey = Schema.Struct({
  // Accepts any text: a malformed key gets the same answer as an invalid one.
  key: Schema.String.check(Schema.isMinLength(1, { expected: "at least 1 character" })).annotate({
    description: "The key to check.",
    examples: [exampleKey],
  }),
}).annotate({ identifier: "ValidateKey" })

/** The owner of a valid key. */
export const ValidKey = Schema.Struct({
  keyId: Id,
  orgId: Id,
  projectId: Schema.String.annotate({
    description: "The project of the key. Empty: it is a key of the whole org.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9V"],
  }),
}).annotate({ identifier: "ValidKey" })
export interface ValidKey extends Schema.Schema.Type<typeof ValidKey> {}
