import { Layer } from "effect"
import { hash } from "node:crypto"
import { KeyHash } from "../../domain/keys/KeyHash.ts"

/** SHA-256 by Node's OpenSSL: in one call, as half of what a digest object takes is its making. */
export const layer = Layer.succeed(KeyHash, (key) => hash("sha256", key, "hex"))
