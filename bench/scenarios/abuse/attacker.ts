import { setPriority } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { parentPort, workerData } from "node:worker_threads"
import { type Attack, type AttackName, attacks } from "./attacks.ts"
import { makeClient, type Target } from "./client.ts"

/** The attacker in a thread: sends waves of an attack until a message comes, then posts the statuses that came. */
const { attack, target } = workerData as { readonly attack: AttackName; readonly target: Target }
const client = makeClient(target)
// A real attacker uses another machine, so this thread must not take the CPU of the measured service. Linux only.
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
