import { Context } from "effect"

/** Ed25519 (RFC 8032). */
export class Ed25519 extends Context.Service<
  Ed25519,
  {
    /** The key pair of a seed: the 32 bytes of the public key in base64, and the private key as text for `sign`. */
    readonly keyPair: (seed: Uint8Array) => { readonly publicKey: string; readonly privateKey: string }
    /** Prepares a private key, and returns a function that signs messages, in base64. */
    readonly sign: (privateKey: string) => (message: string) => string
  }
>()("gatehouse/domain/Signature/Ed25519") {}

/** The random bytes that make a key pair of Ed25519. */
export const seedBytes = 32
