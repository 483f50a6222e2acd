import { Result, Schema } from "effect"
import { Base64, Base64Url, Hex } from "effect/encoding"
import { expiry, Id, KeyId, Name } from "../Schemas.ts"
import { newSettings } from "./KeySettings.ts"

/** The lengths of imported keys, in characters. */
export const importedKeyLengths = { min: 8, max: 255 }

/** Keys with a slow hash that may begin in the same way: a validation verifies all of them. */
export const maxKeysPerStart = 20
/** The lengths of what they begin with. */
export const startLengths = { min: 4, max: 16 }

const digestBytes = { sha256: 32, sha512: 64 }
// The costs have a maximum: each hash is computed by a validation.
const slowHashes = {
  bcrypt: {
    shape: /^\$2[aby]\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}$/,
    expected: "$2b$12$ and 53 characters; the cost is 4 to 14",
  },
  scrypt: {
    shape: /^\$scrypt\$ln=([1-9]|1[0-6]),r=[1-8],p=[1-4]\$[A-Za-z0-9+/]{11,86}={0,2}\$[A-Za-z0-9+/]{22,86}={0,2}$/,
    expected: "$scrypt$ln=15,r=8,p=1$salt$hash in base64; ln is at most 16, r 8 and p 4",
  },
  argon2id: {
    shape: /^\$argon2id\$v=19\$m=[1-9]\d{2,4},t=[1-9],p=[1-4]\$[A-Za-z0-9+/]{11,86}={0,2}\$[A-Za-z0-9+/]{22,86}={0,2}$/,
    expected: "$argon2id$v=19$m=65536,t=3,p=4$salt$hash in base64; m is 100 to 99999, t at most 9 and p 4",
  },
}

/** A key that was made elsewhere, by its hash. */
export const KeyToImport = Schema.Struct({
  hash: Schema.String.check(Schema.isMaxLength(255, { expected: "at most 255 characters" })).annotate({
    description: "The hash of the key: a digest, or for bcrypt, scrypt and argon2id the text with salt and cost.",
    examples: ["5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"],
  }),
  algorithm: Schema.Literals(["sha256", "sha512", "bcrypt", "scrypt", "argon2id"]).annotate({
    description: "How the key was hashed, without a pepper.",
    examples: ["sha256"],
  }),
  encoding: Schema.optionalKey(Schema.Literals(["hex", "base64", "base64url"])).annotate({
    description: "The encoding of a digest. Default: hex.",
    examples: ["hex"],
  }),
  start: Schema.optionalKey(
    Schema.String.check(Schema.isPattern(/^[\x21-\x7e]{4,16}$/u, { expected: "4 to 16 visible ASCII characters" })),
  ).annotate({
    description:
      "The first characters of the key, shown in lists. bcrypt, scrypt and argon2id need it to find the key.",
    examples: ["sk_live_4fJq"],
  }),
  name: Name.annotate({ description: "A label that helps people recognize the key.", examples: ["ci"] }),
  projectId: Schema.optionalKey(Id).annotate({ description: "The project of the key. Absent: a key of the org." }),
  expiresAt: Schema.optionalKey(expiry("When the key expires. Absent: never.")),
  ...newSettings,
}).annotate({ identifier: "KeyToImport" })
export type KeyToImport = typeof KeyToImport.Type

const maxKeys = 1_000
export const ImportKeys = Schema.Struct({
  keys: Schema.Array(KeyToImport)
    .check(
      Schema.isMinLength(1, { expected: "a list of 1 to 1,000 keys" }),
      Schema.isMaxLength(maxKeys, { expected: "a list of 1 to 1,000 keys" }),
    )
    .annotate({ description: "The keys to import: 1 to 1,000, all or none." }),
  dryRun: Schema.optionalKey(Schema.Boolean).annotate({
    description: "true: checks everything and imports nothing; the ids of new keys are null.",
    examples: [true],
  }),
}).annotate({ identifier: "ImportKeys" })
export type ImportKeys = typeof ImportKeys.Type

const Outcome = <S extends Schema.Top>(id: S) =>
  Schema.Array(
    Schema.Struct({ index: Schema.Int.annotate({ description: "Its place in the request.", examples: [0] }), id }),
  )
/** What became of each key of the request, by its index. */
export const ImportedKeys = Schema.Struct({
  imported: Outcome(Schema.NullOr(Id).annotate({ description: "The id of the key. null: a dry run." })).annotate({
    description: "The new keys.",
  }),
  existing: Outcome(Schema.NullOr(KeyId)).annotate({
    description:
      "Those whose hash the org has imported before, or by another key of the request; then a dry run has no id. They " +
      "do not change.",
  }),
}).annotate({ identifier: "ImportedKeys" })
export type ImportedKeys = typeof ImportedKeys.Type

/** The padding of base64, which is optional: what is stored has none. */
const padding = /={1,2}(?=\$|$)/g

const codecs = { hex: Hex, base64: Base64, base64url: Base64Url }

/** The bytes of a hash in hex, as they are stored, or what it must be. The text of a slow hash is its bytes. */
export const bytesOf = ({
  algorithm,
  encoding = "hex",
  hash,
}: KeyToImport): { readonly hex: string; readonly isSlow: boolean } | { readonly expected: string } => {
  if (algorithm !== "sha256" && algorithm !== "sha512") {
    const { expected, shape } = slowHashes[algorithm]
    if (!shape.test(hash)) return { expected }
    return { hex: Hex.encode(hash.replace(padding, "")), isSlow: true }
  }
  const length = digestBytes[algorithm]
  const text = encoding === "hex" ? hash.toLowerCase() : hash.replace(padding, "")
  const whole = encoding === "base64" ? text.padEnd(4 * Math.ceil(text.length / 4), "=") : text
  const bytes = Result.getOrElse(codecs[encoding].decode(whole), () => new Uint8Array())
  // A decoder skips line ends, and the last bits of a character that stand for nothing.
  return bytes.length === length && codecs[encoding].encode(bytes) === whole
    ? { hex: Hex.encode(bytes), isSlow: false }
    : { expected: `the ${length} bytes of ${algorithm} in ${encoding}` }
}
