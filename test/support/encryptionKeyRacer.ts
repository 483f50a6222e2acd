import { Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { join } from "node:path"
import { parentPort, workerData } from "node:worker_threads"
import { load } from "../../src/infrastructure/crypto/EncryptionKeys.ts"

const { barrier, racers, root, rounds } = workerData as {
  readonly barrier: SharedArrayBuffer
  readonly racers: number
  readonly root: string
  readonly rounds: number
}
const arrived = new Int32Array(barrier)

/** Waits until every racer has reached this round. */
const together = (round: number) => {
  const all = (round + 1) * racers
  if (Atomics.add(arrived, 0, 1) + 1 === all) Atomics.notify(arrived, 0)
  for (let seen = Atomics.load(arrived, 0); seen < all; seen = Atomics.load(arrived, 0)) Atomics.wait(arrived, 0, seen)
}

const made: Array<string> = []
for (let round = 0; round < rounds; round++) {
  together(round)
  const keys = Effect.runSync(
    load({ dataDir: join(root, String(round)) }).pipe(Effect.provide(SecureRandom.layerWebCrypto)),
  )
  made.push(keys.map((key) => Buffer.from(Redacted.value(key)).toString("base64")).join())
}
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port has no origin
parentPort!.postMessage(made)
