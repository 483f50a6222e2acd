import { setPriority } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { parentPort, workerData } from "node:worker_threads"
import { type Attack, type AttackName, attacks } from "./attacks.ts"
import { makeClient, type Target } from "./client.ts"

/** The attacker in a thread of its own: waves of an attack until a message comes; then posts what it was answered. */
const { attack, target } = workerData as { readonly attack: AttackName; readonly target: Target }
const client = makeClient(target)
// Its machine is another one: what it computes must not take the time of whoever is measured. On Linux, of this thread.
if (process.platform === "linux") setPriority(19)
const state = { stopped: false }
const run: Attack = attacks[attack]
const waves = async () => {
  while (!state.stopped) {
    const next = sleep(1_000)
    await run(client, target)
    await next
  }
}
parentPort!.once("message", () => {
  state.stopped = true
  client.close()
  parentPort!.postMessage(client.statuses)
})
void waves()
