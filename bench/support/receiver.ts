import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { request } from "undici"
import { answers, type Child, freePort, start } from "./process.ts"
import type { Scope } from "./scope.ts"

interface Received {
  readonly count: number
  /** The number of webhooks with an invalid signature. */
  readonly wrong: number
  /** The times of the first and the last arrival, in milliseconds. */
  readonly first: number
  readonly last: number
}

/** A process that receives webhooks, verifies and counts them. */
export interface Receiver extends Child {
  readonly url: string
  readonly received: () => Promise<Received>
  /** Starts the count from zero. */
  readonly reset: () => Promise<void>
  /** Waits until this many have arrived; fails when none arrives for a minute. */
  readonly until: (count: number) => Promise<Received>
}

/** Starts a receiver that knows the secret. */
export const startReceiver = async (scope: Scope, folder: string, secret: string): Promise<Receiver> => {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const child = await start(scope, {
    command: [process.execPath, fileURLToPath(new URL("./receiverServer.ts", import.meta.url))],
    environment: { PORT: String(port), SECRET: secret },
    log: join(folder, "receiver.log"),
    ready: answers(url),
  })
  const get = async (path: string) => (await (await request(url + path)).body.json()) as Received
  const until = async (count: number) => {
    let seen = -1
    let since = performance.now()
    for (;;) {
      const received = await get("/")
      if (received.wrong > 0) throw new Error(`${received.wrong} deliveries were not signed as they should be`)
      if (received.count >= count) return received
      if (received.count > seen) {
        seen = received.count
        since = performance.now()
      }
      if (performance.now() - since > 60_000) throw new Error(`Only ${seen} of ${count} deliveries came`)
      await sleep(20)
    }
  }
  return { ...child, url, until, received: () => get("/"), reset: async () => void (await get("/reset")) }
}
