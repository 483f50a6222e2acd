import { Schema } from "effect"
import { Id, Name, Timestamp } from "../Schemas.ts"

/** What every key begins with, so that people and secret scanners know one when they see it. */
export const keyPrefix = "svc_"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const randomLength = 36
const checksumLength = 6
/** How many characters a key has. */
export const keyLength = keyPrefix.length + randomLength + checksumLength
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

/** The CRC-32 of the random part as six base62 digits, most significant first. */
const checksum = (random: string) => {
  let digits = ""
  for (let rest = crc32(random), i = 0; i < checksumLength; i++, rest = Math.floor(rest / 62)) {
    digits = alphabet[rest % 62]! + digits
  }
  return digits
}

/**
 * Makes a key out of random bytes: `svc_`, 36 base62 characters, 6 of checksum. A byte of 248 or more is passed over,
 * so that every character is equally likely; `undefined` when too few bytes were left.
 */
export const fromRandomBytes = (bytes: Uint8Array): string | undefined => {
  let random = ""
  for (const byte of bytes) {
    if (byte < 248 && random.length < randomLength) random += alphabet[byte % 62]!
  }
  return random.length === randomLength ? keyPrefix + random + checksum(random) : undefined
}

/** Whether text is a key as the service makes them, by its shape and checksum: a mistyped key costs no query. */
export const isWellFormed = (key: string): boolean =>
  shape.test(key) && checksum(key.slice(keyPrefix.length, -checksumLength)) === key.slice(-checksumLength)

/** The part of a key that may be shown: `svc_` and eight characters. */
export const displayPrefix = (key: string) => key.slice(0, keyPrefix.length + 8)

const KeyName = Schema.String.annotate({ examples: ["ci"] })
const Prefix = Schema.String.annotate({
  description: "The first 12 characters of the key.",
  examples: ["svc_hE4kPz9Q"],
})
const exampleKey = "svc_hE4kPz9QmT2vX7cRw1LsNd8YbUa5JgFo6iKe2eUdYl"

const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` }))

/** How often a key may be validated: `limit` times at once, and as many again in every `window` seconds. */
export const RateLimit = Schema.Struct({
  limit: whole(1, 1_000_000).annotate({ description: "Validations in a window.", examples: [600] }),
  window: whole(1, 86_400).annotate({ description: "The window, in seconds.", examples: [60] }),
}).annotate({ identifier: "RateLimit" })
export interface RateLimit extends Schema.Schema.Type<typeof RateLimit> {}

/** A key as its owner sees it later: without the secret. */
export const ApiKey = Schema.Struct({
  id: Id,
  name: KeyName,
  prefix: Prefix,
  projectId: Schema.NullOr(Id).annotate({ description: "null: a key of the whole org." }),
  createdAt: Timestamp,
  expiresAt: Schema.NullOr(Timestamp),
  rateLimit: Schema.NullOr(RateLimit).annotate({ description: "null: it may be validated as often as one likes." }),
  lastUsedAt: Schema.NullOr(Timestamp).annotate({
    description: "Within some seconds: written behind the validations.",
  }),
}).annotate({ identifier: "ApiKey" })
export interface ApiKey extends Schema.Schema.Type<typeof ApiKey> {}

/** A key at its creation: the only time that it is shown. */
export const CreatedApiKey = Schema.Struct({
  id: Id,
  name: KeyName,
  prefix: Prefix,
  key: Schema.String.annotate({
    description: "The full key. It is shown this once and stored nowhere.",
    examples: [exampleKey],
  }),
}).annotate({ identifier: "CreatedApiKey" })
export interface CreatedApiKey extends Schema.Schema.Type<typeof CreatedApiKey> {}

const newKey = {
  name: Name.annotate({ description: "A label, to know the key by.", examples: ["ci"] }),
  expiresAt: Schema.optionalKey(
    Timestamp.annotate({ description: "When the key stops being valid, in the future. Absent: never." }),
  ),
  rateLimit: Schema.optionalKey(RateLimit).annotate({
    description: "How often the key may be validated, counted by each replica. Absent: as often as one likes.",
  }),
}
export const CreateProjectKey = Schema.Struct({ ...newKey, projectId: Id }).annotate({ identifier: "CreateProjectKey" })
export const CreateOrgKey = Schema.Struct(newKey).annotate({ identifier: "CreateOrgKey" })

/** For how long the old key stays good when a rotation does not say: a day. */
export const defaultOverlapSeconds = 86_400

export const RotateKey = Schema.Struct({
  overlapSeconds: Schema.optionalKey(
    whole(0, 604_800).annotate({
      description: "How long the old key stays good beside the new one, in seconds. Default 86400; 0 ends it at once.",
      examples: [3600],
    }),
  ),
  expiresAt: Schema.optionalKey(Schema.NullOr(Timestamp)).annotate({
    description: "When the new key stops being valid, in the future; null: never. Absent: as the old key.",
    examples: [null],
  }),
}).annotate({ identifier: "RotateKey" })

export const ValidateKey = Schema.Struct({
  // Any text: one that cannot be a key is a key that is not valid.
  key: Schema.String.check(Schema.isMinLength(1, { expected: "at least 1 character" })).annotate({
    description: "The key to check.",
    examples: [exampleKey],
  }),
}).annotate({ identifier: "ValidateKey" })

/** Whose key it is. */
export const ValidKey = Schema.Struct({
  keyId: Id,
  orgId: Id,
  projectId: Schema.String.annotate({
    description: "Empty for a key of the whole org.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9V"],
  }),
}).annotate({ identifier: "ValidKey" })
export interface ValidKey extends Schema.Schema.Type<typeof ValidKey> {}
