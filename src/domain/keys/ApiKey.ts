import { Schema } from "effect"
import { searchQuery } from "../Page.ts"
import { CreatedAt, expiry, Id, KeyId, Name, NullableMetadata, OrgId, ProjectId, Timestamp, whole } from "../Schemas.ts"
import { changedSettings, Credits, ExternalId, newSettings, RateLimit } from "./KeySettings.ts"
import { ClientIp } from "./AllowedIps.ts"
import { NeededPermissions } from "./Permission.ts"

/** The prefix of keys whose owner has none. People and secret scanners recognize a key by its prefix. */
export const defaultKeyPrefix = "svc"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const randomLength = 36
const checksumLength = 6
const secretLength = randomLength + checksumLength
/** The lengths of API keys, in characters: a prefix of 3 to 24, an underscore, and what nobody can guess. */
export const apiKeyLengths = { min: 3 + 1 + secretLength, max: 24 + 1 + secretLength }
const shape = new RegExp(`^[a-z][a-z0-9_]{1,22}[a-z0-9]_[0-9A-Za-z]{${secretLength}}$`)

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
 * Makes a key from random bytes: its prefix, `_`, 36 base62 characters and a checksum of 6. Skips bytes of 248 or more,
 * so that every character is equally likely. Returns `undefined` when too few bytes remain.
 */
export const fromRandomBytes = (bytes: Uint8Array, prefix = defaultKeyPrefix): string | undefined => {
  let random = ""
  for (const byte of bytes) {
    if (byte < 248 && random.length < randomLength) random += alphabet[byte % 62]!
  }
  return random.length === randomLength ? `${prefix}_${random}${checksum(random)}` : undefined
}

/** Whether a text has the form and the checksum of a key, of any prefix. A mistyped key needs no query. */
export const isWellFormed = (key: string): boolean =>
  shape.test(key) && checksum(key.slice(-secretLength, -checksumLength)) === key.slice(-checksumLength)

/** Whether a credential is meant as a key; one with a prefix of its owner's is known by its checksum. */
export const isMeantAsKey = (credential: string) =>
  credential.startsWith(`${defaultKeyPrefix}_`) || isWellFormed(credential)

/** The visible part of a key: its prefix, `_` and eight characters. */
export const displayPrefix = (key: string) => key.slice(0, 8 - secretLength)

const KeyName = Schema.String.annotate({ description: "The name of the key, for people.", examples: ["ci"] })
const Prefix = Schema.String.annotate({
  description: "The start of the key: its prefix and eight more characters.",
  examples: ["svc_hE4kPz9Q"],
})
const exampleKey = "svc_hE4kPz9QmT2vX7cRw1LsNd8YbUa5JgFo6iKe2eUdYl"

/** A key without its secret. */
export const ApiKey = Schema.Struct({
  id: KeyId,
  name: KeyName,
  prefix: Prefix,
  projectId: Schema.NullOr(Id).annotate({ description: "The project of the key. null: it is a key of the whole org." }),
  createdAt: CreatedAt,
  expiresAt: Schema.NullOr(expiry("When the key expires. null: never.")),
  rateLimit: Schema.NullOr(RateLimit).annotate({ description: "The rate limit of the key. null: unlimited." }),
  lastUsedAt: Schema.NullOr(Timestamp).annotate({
    description: "The last use of the key. It is written some seconds later. null: the key was never used.",
  }),
  enabled: Schema.Boolean.annotate({ description: "false: the key is refused." }),
  leakedAt: Schema.NullOr(Timestamp).annotate({
    description: "When the key was reported as leaked, which disabled it for good. null: it was not.",
    examples: [null],
  }),
  replacedBy: Schema.NullOr(Id).annotate({
    description: "The key that replaced it in a rotation; it cannot be rotated again. null: it was not rotated.",
    examples: [null],
  }),
  imported: Schema.Boolean.annotate({
    description: "Whether the key was made elsewhere, and imported by its hash.",
    examples: [false],
  }),
  permissions: Schema.Array(Schema.String).annotate({
    description: "What the key may do.",
    examples: [["models.gpt-5.use", "files.*"]],
  }),
  roles: Schema.Array(Schema.String).annotate({
    description: "The roles of the key. A role that was deleted grants nothing.",
    examples: [["reader"]],
  }),
  externalId: Schema.NullOr(Schema.String).annotate({
    description: "Your own id of the holder of the key.",
    examples: ["customer_42"],
  }),
  metadata: NullableMetadata,
  allowedIps: Schema.NullOr(Schema.Array(Schema.String)).annotate({
    description: "The networks from which the key may be used. null: from everywhere.",
    examples: [["203.0.113.0/24"]],
  }),
  credits: Schema.NullOr(Credits).annotate({
    description:
      "The credits that are left, and how they are refilled. Other replicas may hold up to 1 % of them each, which they return when they are idle. " +
      "null: the key has no credits.",
  }),
}).annotate({ identifier: "ApiKey" })
export interface ApiKey extends Schema.Schema.Type<typeof ApiKey> {}

/** The states of a key. A key has exactly one: leaked, else expired, else disabled, else valid. */
export const KeyState = Schema.Literals(["valid", "disabled", "expired", "leaked"])
export type KeyState = typeof KeyState.Type

/** The filters of the list of keys. A key must fit all that are given. */
export const keyFilters = {
  externalId: Schema.optionalKey(ExternalId),
  name: Schema.optionalKey(Name.annotate({ description: "The exact name of a key.", examples: ["ci"] })),
  projectId: Schema.optionalKey(Id.annotate({ description: "The project of the keys." })),
  state: Schema.optionalKey(KeyState).annotate({
    description: "valid: neither disabled nor expired. A leaked key is only leaked, an expired one is not disabled.",
    examples: ["disabled"],
  }),
  ...searchQuery,
}

/** A new key with its secret, which is shown only once. */
export const CreatedApiKey = Schema.Struct({
  id: KeyId,
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
  expiresAt: Schema.optionalKey(expiry("When the key expires; a time in the future. Absent: never.")),
  ...newSettings,
}
export const CreateProjectKey = Schema.Struct({ ...newKey, projectId: ProjectId }).annotate({
  identifier: "CreateProjectKey",
})
export const CreateOrgKey = Schema.Struct(newKey).annotate({ identifier: "CreateOrgKey" })

/** The changes of a key. An absent field does not change; `null` clears. */
export const UpdateKey = Schema.Struct({
  name: Schema.optionalKey(
    Name.annotate({ description: "A label that helps people recognize the key.", examples: ["ci"] }),
  ),
  expiresAt: Schema.optionalKey(Schema.NullOr(expiry("When the key expires; a time in the future. null: never."))),
  ...changedSettings,
})
  .check(
    Schema.makeFilter((change: object) => Object.keys(change).length > 0, {
      expected: "an object with at least one field",
      toJsonSchema: () => ({ minProperties: 1 }),
    }),
  )
  .annotate({ identifier: "UpdateKey" })
export type UpdateKey = typeof UpdateKey.Type

/** The default grace period of a rotation: one day. */
export const defaultGraceSeconds = 86_400

export const RotateKey = Schema.Struct({
  overlapSeconds: Schema.optionalKey(
    whole(0, 604_800).annotate({
      description: `How long the old key stays valid, in seconds. Default: ${defaultGraceSeconds}. 0: the old key expires at once.`,
      examples: [3600],
    }),
  ),
  expiresAt: Schema.optionalKey(
    Schema.NullOr(
      expiry(
        "When the new key expires; a time in the future. null: never. Absent: when the old key would have expired.",
      ),
    ),
  ),
  ...changedSettings,
}).annotate({ identifier: "RotateKey" })

/** What a use takes if it does not say. */
export const defaultCost = 1

const cost = Schema.optionalKey(whole(0, 1_000_000)).annotateKey({
  description: `What this use takes of the key's rate limit and credits. Default: ${defaultCost}. 0 is never limited.`,
  examples: [1],
})

export const ValidateKey = Schema.Struct({
  // Accepts any text: a malformed key gets the same response as an invalid one.
  key: Schema.String.check(Schema.isMinLength(1, { expected: "at least 1 character" })).annotate({
    description: "The key to check.",
    examples: [exampleKey],
  }),
  permissions: Schema.optionalKey(
    NeededPermissions.annotate({
      description: "What the key must be permitted to do, all of it: 1 to 20 permissions. Else the answer is a 403.",
      examples: [["models.gpt-5.use"]],
    }),
  ),
  cost,
  clientIp: Schema.optionalKey(ClientIp),
  details: Schema.optionalKey(
    Schema.Boolean.annotate({ description: "true: the answer has the details of the key.", examples: [true] }),
  ),
}).annotate({ identifier: "ValidateKey" })
export type ValidateKey = typeof ValidateKey.Type

/** The policy of an authorization by a proxy. */
export const authorizeQuery = {
  permission: Schema.optionalKey(
    NeededPermissions.annotate({
      description: "What the key must be permitted to do; up to 20, each as a parameter of its own.",
      examples: [["files.read"]],
    }),
  ),
  cost,
  header: Schema.optionalKey(
    Schema.String.check(
      Schema.isPattern(/^[A-Za-z0-9-]{1,64}$/u, { expected: "the name of a header, such as x-acme-key" }),
    ).annotate({
      description: "The header that has the key. Default: Authorization: Bearer, or x-api-key.",
      examples: ["x-acme-key"],
    }),
  ),
}

/** The owner of a valid key. */
export const ValidKey = Schema.Struct({
  keyId: KeyId,
  orgId: OrgId,
  projectId: Schema.String.annotate({
    description: "The project of the key. Empty: it is a key of the whole org.",
    examples: ["01KAHBMKZ3D2X7S5QN8W4V6R9V"],
  }),
}).annotate({ identifier: "ValidKey" })
export interface ValidKey extends Schema.Schema.Type<typeof ValidKey> {}

/** The answer of a validation; the further fields are those of `details`. */
export const ValidatedKey = Schema.Struct({
  ...ValidKey.fields,
  name: Schema.optionalKey(KeyName),
  externalId: Schema.optionalKey(ApiKey.fields.externalId),
  metadata: Schema.optionalKey(ApiKey.fields.metadata),
  permissions: Schema.optionalKey(
    ApiKey.fields.permissions.annotate({ description: "What the key may do, with the permissions of its roles." }),
  ),
  expiresAt: Schema.optionalKey(ApiKey.fields.expiresAt),
  credits: Schema.optionalKey(
    Schema.NullOr(Schema.Int).annotate({
      description: "The credits that are left. null: the key has no credits.",
      examples: [99_500],
    }),
  ),
}).annotate({ identifier: "ValidatedKey" })
export interface ValidatedKey extends Schema.Schema.Type<typeof ValidatedKey> {}

/** The longest life of a token, and its life if the request does not say. */
export const maxTokenSeconds = 3_600
export const defaultTokenSeconds = 300

export const ExchangeKey = Schema.Struct({
  key: ValidateKey.fields.key,
  permissions: ValidateKey.fields.permissions.annotate({
    description: "The permissions of the token. The key must have all of them. Absent: those of the key.",
  }),
  expiresInSeconds: Schema.optionalKey(whole(60, maxTokenSeconds)).annotate({
    description: `How long the token is valid, 60 to 3600. Default: ${defaultTokenSeconds}. It ends with the key at the latest.`,
    examples: [300],
  }),
}).annotate({ identifier: "ExchangeKey" })

export const KeyToken = Schema.Struct({
  token: Schema.String.annotate({
    description: "A JWT, signed with EdDSA by a key of /.well-known/jwks.json.",
    examples: ["eyJhbGciOiJFZERTQSJ9.e30.c2ln"],
  }),
  expiresAt: expiry("When the token expires."),
}).annotate({ identifier: "KeyToken" })
export type KeyToken = typeof KeyToken.Type

const text = (description: string, example: string) => Schema.String.annotate({ description, examples: [example] })
/** RFC 7517 and RFC 8037. */
export const JsonWebKeys = Schema.Struct({
  keys: Schema.Array(
    Schema.Struct({
      kty: text("The kind of the key.", "OKP"),
      crv: text("The curve of the key.", "Ed25519"),
      alg: text("The algorithm of its signatures.", "EdDSA"),
      use: text("What the key is for.", "sig"),
      kid: text("The id of the key, which the header of a token has.", "01KAHBMKZ3D2X7S5QN8W4V6R9T"),
      x: text("The public key in base64url.", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
    }).annotate({ identifier: "JsonWebKey" }),
  ).annotate({ description: "The public keys that verify tokens." }),
}).annotate({ identifier: "JsonWebKeys" })
