import { spawn } from "node:child_process"
import { once } from "node:events"
import { closeSync, openSync, readFileSync } from "node:fs"
import { createServer, type AddressInfo } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { request } from "undici"
import { onServerCore } from "./cpu.ts"
import type { Scope } from "./scope.ts"

/** A process that was started and is ready. */
export interface Child {
  readonly pid: number
  /** Its standard output so far. */
  readonly output: () => string
  /** Stops it: SIGTERM, and after ten seconds SIGKILL. */
  readonly stop: () => Promise<void>
}

export interface Start {
  readonly command: ReadonlyArray<string>
  /** Its whole environment, without PATH. */
  readonly environment?: Readonly<Record<string, string>>
  /** The file for its output, because a log is part of a server's cost. */
  readonly log: string
  /** Whether it is measured, and so has a core of its own. */
  readonly measured?: boolean
  /** Whether it is ready. Called repeatedly; the start fails after two minutes. */
  readonly ready: () => Promise<boolean> | boolean
}

/** A loopback port that is free now. */
export const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const probe = createServer().once("error", reject)
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo
      probe.close(() => resolve(port))
    })
  })

/** Whether a GET is answered with 200. */
export const answers = (url: string) => async (): Promise<boolean> => {
  try {
    const { body, statusCode } = await request(url)
    await body.dump()
    return statusCode === 200
  } catch {
    return false
  }
}

/** Starts a process and waits until it is ready; stops it when the scope closes. */
export const start = async (scope: Scope, options: Start): Promise<Child> => {
  const [file, ...args] = [...(options.measured === true ? onServerCore : []), ...options.command]
  const out = openSync(options.log, "w")
  const child = spawn(file!, args, {
    env: { PATH: process.env.PATH, ...options.environment },
    // Standard input ends with this process, even when that is killed.
    stdio: ["pipe", out, out],
    // A Ctrl-C reaches only this process, which stops the others in order.
    detached: true,
  })
  closeSync(out)
  const ended = once(child, "exit")
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    child.stdin?.end()
    child.kill("SIGTERM")
    const late = setTimeoutUnref(() => child.kill("SIGKILL"), 10_000)
    await ended
    clearTimeout(late)
  }
  scope.defer(stop)
  await once(child, "spawn")
  const output = () => readFileSync(options.log, "utf8")
  const deadline = performance.now() + 120_000
  while (!(await options.ready())) {
    if (child.exitCode !== null || child.signalCode !== null || performance.now() > deadline) {
      throw new Error(`${options.command.join(" ")} did not start:\n${output()}`)
    }
    await sleep(2)
  }
  return { pid: child.pid!, output, stop }
}

const setTimeoutUnref = (f: () => void, millis: number) => {
  const timer = globalThis.setTimeout(f, millis)
  timer.unref()
  return timer
}
