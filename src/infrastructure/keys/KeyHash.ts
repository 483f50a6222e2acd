import { Layer } from "effect"
import { hash } from "node:crypto"
import { KeyHash } from "../../domain/keys/KeyLookup.ts"

/** SHA-256 by Node's OpenSSL. One call takes half the time of a digest object. */
export const layer = Layer.succeed(KeyHash, (key) => hash("sha256", key, "hex"))
