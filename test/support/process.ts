import { Effect } from "effect"
import { type ChildProcessByStdio, spawn } from "node:child_process"
import { once } from "node:events"
import { Agent } from "node:http"
import { createInterface } from "node:readline"
import type { Readable } from "node:stream"
import { fileURLToPath } from "node:url"
import type { PreloadRequest } from "./preload.ts"
import { type Send, sender } from "./wire.ts"

/** The file that is run. */
export const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))
const preload = new URL("./preload.ts", import.meta.url).href

/** Options of the process. */
export interface ProcessOptions {
  /** Whether it obeys `ask`. */
  readonly preloaded?: boolean
  /** The limit of its open files and sockets. */
  readonly maxFiles?: number
}

/** The service in a separate process. */
export interface Service {
  readonly pid: number
  readonly url: string
  readonly send: Send
  /** Sends it a signal without waiting. */
  readonly signal: (signal: NodeJS.Signals) => void
  /** Ends it; returns the signal or the exit code, and the time that took, in milliseconds. */
  readonly end: (signal: "SIGKILL" | "SIGTERM") => Effect.Effect<{ readonly how: unknown; readonly took: number }>
  /** Its log so far. */
  readonly log: () => string
  /**
   * For a preloaded process: steps its wall clock by milliseconds, or returns its heap in bytes after a collection, or
   * the CPU time of its main thread in milliseconds.
   */
  readonly ask: (request: PreloadRequest) => Effect.Effect<number>
}

/** Starts the service on a free loopback port, waits until it listens, and kills it when the scope closes. */
export const startService = (
  environment: Readonly<Record<string, string>>,
  { maxFiles, preloaded = false }: ProcessOptions = {},
) =>
  Effect.acquireRelease(
    Effect.promise(async (): Promise<Service & { readonly kill: () => void }> => {
      const command = [process.execPath, ...(preloaded ? ["--expose-gc", "--import", preload] : []), main]
      const limit = maxFiles === undefined ? "" : `ulimit -n ${maxFiles} && `
      const child = spawn("/bin/sh", ["-c", `${limit}exec "$@"`, "sh", ...command], {
        env: { PATH: process.env.PATH, PORT: "0", LOG_FORMAT: "json", ...environment },
        stdio: ["ignore", "pipe", "pipe", ...(preloaded ? ["ipc" as const] : [])],
      }) as ChildProcessByStdio<null, Readable, Readable>
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
        url,
        send: sender(url, agent),
        signal: (signal) => void child.kill(signal),
        end: (signal) => Effect.promise(() => end(signal)),
        log: () => lines.join("\n"),
        ask: (request) =>
          Effect.promise(async () => {
            const answered = once(child, "message")
            child.send(request)
            return (await answered)[0] as number
          }),
        kill: () => void end("SIGKILL"),
      }
    }),
    ({ kill }) => Effect.sync(kill),
  )
