import { execFile, execFileSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { cpuOf, cpuOfEnded } from "./cpu.ts"
import { scoped } from "./scope.ts"

const run = promisify(execFile)

/** A request that the load repeats: one of many, in turn. */
export interface LoadRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** The figures of a load. */
export interface Load {
  readonly perSecond: number
  readonly requests: number
  /** In milliseconds. */
  readonly p50: number
  readonly p99: number
  /** CPU microseconds of the server per request. */
  readonly cpu: number
  /** CPU microseconds of the database's processes per request; NaN without a database. */
  readonly databaseCpu: number
  /** The share of one core that the loader used, 0 to 1. Near 1, the loader itself was measured. */
  readonly loader: number
}

/** The number of connections of every load. */
export const connections = 64

/** Whether a command is installed. */
export const has = (command: string) => {
  try {
    execFileSync("which", [command], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
}

/** The load generator: wrk where it is installed, else autocannon, which uses more CPU itself. */
export const tool = has("wrk") ? ("wrk" as const) : ("autocannon" as const)

const raw = (host: string) => (request: LoadRequest) => {
  const headers = { host, ...request.headers, "content-length": String(Buffer.byteLength(request.body)) }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${request.method} ${request.path} HTTP/1.1\r\n${lines.join("")}\r\n${request.body}`
}

let files = 0

/** Writes the requests for a server to a file; returns a function that sends them for some seconds and counts. */
export const prepareLoad = (
  folder: string,
  url: string,
  requests: ReadonlyArray<LoadRequest>,
  watch: { readonly server: number; readonly database?: () => number },
) => {
  const file = join(folder, `load-${files++}`)
  writeFileSync(
    file,
    tool === "wrk" ? requests.map(raw(new URL(url).host)).join("\0") : JSON.stringify({ url, connections, requests }),
  )
  const command = (seconds: number): [string, ReadonlyArray<string>] =>
    tool === "wrk"
      ? [
          "wrk",
          ["-t1", `-c${connections}`, `-d${seconds}s`, "--timeout", "30s", "-s", support("load.lua"), url, "--", file],
        ]
      : [process.execPath, [support("../peers/autocannon.ts"), file, String(seconds)]]

  return async (seconds: number): Promise<Load> => {
    const [program, args] = command(seconds)
    const before = { server: cpuOf(watch.server), database: watch.database?.() ?? Number.NaN, loader: cpuOfEnded() }
    const stdout = await scoped(async (scope) => {
      const sending = run(program, args, { timeout: (seconds + 45) * 1000 })
      scope.defer(() => sending.child.kill())
      return (await sending).stdout
    })
    const server = cpuOf(watch.server) - before.server
    const database = (watch.database?.() ?? Number.NaN) - before.database
    const loader = cpuOfEnded() - before.loader
    const found = JSON.parse(stdout.slice(stdout.lastIndexOf("\n{") + 1)) as Record<string, number>
    const { failed, micros, p50, p99, refused, requests } = found as Record<keyof typeof found, number>
    if (refused! + failed! > 0 || requests === 0) {
      throw new Error(`${url}: ${refused} of ${requests} requests were refused, and ${failed} failed`)
    }
    return {
      perSecond: (requests! / micros!) * 1e6,
      requests: requests!,
      p50: p50!,
      p99: p99!,
      cpu: (server / requests!) * 1e6,
      databaseCpu: (database / requests!) * 1e6,
      loader: (loader / micros!) * 1e6,
    }
  }
}

const support = (name: string) => fileURLToPath(new URL(name, import.meta.url))
