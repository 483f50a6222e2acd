import { Layer } from "effect"
import { Digest, SecureRandom } from "effect/crypto"
import { keyHash } from "#src/infrastructure/crypto/nodeCrypto.ts"

/** Returns a generator of random bytes that are the same in every run (mulberry32). */
export const seededBytes = (seed: number) => {
  let state = seed
  return (size: number) =>
    Uint8Array.from({ length: size }, () => {
      state = (state + 0x6d2b79f5) | 0
      let t = Math.imul(state ^ (state >>> 15), state | 1)
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
      return ((t ^ (t >>> 14)) >>> 0) & 0xff
    })
}

/** Real digests, and randomness that is the same in every run. */
export const layer = Layer.mergeAll(
  Digest.layerWebCrypto,
  keyHash,
  Layer.sync(SecureRandom.SecureRandom, () => SecureRandom.make(seededBytes(1))),
)
