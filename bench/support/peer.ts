import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { answers, type Child, freePort, start } from "./process.ts"
import type { Scope } from "./scope.ts"

/** A program of bench/peers, in a separate process. */
export interface Peer extends Child {
  readonly url: string
}

/**
 * Starts a program of bench/peers and waits until its `/healthz` answers. It gets PORT, DATABASE_URL and the other
 * variables of the environment; `measured` puts it on the measured server's core.
 */
export const startPeer = async (
  scope: Scope,
  folder: string,
  program: string,
  environment: Readonly<Record<string, string>>,
  measured = true,
): Promise<Peer> => {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const child = await start(scope, {
    command: [process.execPath, fileURLToPath(new URL(`../peers/${program}.ts`, import.meta.url))],
    environment: { PORT: String(port), NODE_ENV: "production", ...environment },
    log: join(folder, `${program}-${port}.log`),
    measured,
    ready: answers(`${url}/healthz`),
  })
  return { ...child, url }
}
