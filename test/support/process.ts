import { Effect } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { Agent } from "node:http"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { type Send, sender } from "./wire.ts"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

/** The service as it is run, in a process of its own. */
export interface Service {
  readonly pid: number
  readonly send: Send
  /** Sends it a signal without waiting. */
  readonly signal: (signal: NodeJS.Signals) => void
  /** Ends it: the signal, or the exit code, and how many milliseconds that took. */
  readonly end: (signal: "SIGKILL" | "SIGTERM") => Effect.Effect<{ readonly how: unknown; readonly took: number }>
  /** What it has logged so far. */
  readonly log: () => string
}

/** Starts the service on a free loopback port, waits until it listens, and kills it when the scope closes. */
export const startService = (environment: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.promise(async (): Promise<Service & { readonly kill: () => void }> => {
      const child = spawn(process.execPath, [main], {
        env: { PATH: process.env.PATH, PORT: "0", LOG_FORMAT: "json", ...environment },
        stdio: ["ignore", "pipe", "pipe"],
      })
      const lines: Array<string> = []
      const exited = once(child, "exit")
      const url = await new Promise<string>((resolve, reject) => {
        for (const stream of [child.stdout, child.stderr]) {
          createInterface(stream).on("line", (line) => {
            lines.push(line)
            const [, listening] = /listens on (http:\/\/[\d.:]+)/.exec(line) ?? []
            if (listening !== undefined) resolve(listening)
          })
        }
        child.once("exit", () => reject(new Error(`The service did not start:\n${lines.join("\n")}`)))
      })
      const agent = new Agent({ keepAlive: true })
      const end = async (signal: "SIGKILL" | "SIGTERM") => {
        const since = performance.now()
        child.kill(signal)
        const [code, by] = await exited
        agent.destroy()
        return { how: by ?? code, took: performance.now() - since }
      }
      return {
        pid: child.pid!,
        send: sender(url, agent),
        signal: (signal) => void child.kill(signal),
        end: (signal) => Effect.promise(() => end(signal)),
        log: () => lines.join("\n"),
        kill: () => void end("SIGKILL"),
      }
    }),
    ({ kill }) => Effect.sync(kill),
  )
