import { execFileSync } from "node:child_process"
import { availableParallelism } from "node:os"
import { readdirSync, readFileSync } from "node:fs"

/** Clock ticks per second in /proc: 100 on every Linux that Node runs on (sysconf's _SC_CLK_TCK). */
const ticks = 100

interface Stat {
  readonly parent: number
  /** CPU seconds of the process with all its threads. */
  readonly own: number
  /** CPU seconds of its children that have ended and were waited for. */
  readonly ended: number
}

const read = (pid: number | "self"): Stat | undefined => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8")
    // The fields from the third (state) on, which follow the name. The name may have spaces.
    const fields = text
      .slice(text.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number)
    return { parent: fields[1]!, own: (fields[11]! + fields[12]!) / ticks, ended: (fields[13]! + fields[14]!) / ticks }
  } catch {
    return undefined
  }
}

/** CPU seconds so far of a process, its threads, and the processes that it started; NaN without /proc. */
export const cpuOf = (pid: number): number => {
  const root = read(pid)
  if (root === undefined) return Number.NaN
  const all = new Map(
    readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map((name) => [Number(name), read(Number(name))] as const),
  )
  const isBelow = (child: number): boolean => {
    for (let at = child; at > 1; at = all.get(at)?.parent ?? 0) if (at === pid) return true
    return false
  }
  let seconds = 0
  for (const [child, stat] of all) if (stat !== undefined && isBelow(child)) seconds += stat.own + stat.ended
  return seconds
}

/** CPU seconds so far of this process's ended children: the cost of a load generator that has just ended. */
export const cpuOfEnded = (): number => read("self")?.ended ?? Number.NaN

/** The memory of a process that is in use now (VmRSS), and its peak (VmHWM), in MiB. */
export const memoryOf = (pid: number): { readonly now: number; readonly peak: number } => {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8")
    const mib = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1024
    return { now: mib("VmRSS"), peak: mib("VmHWM") }
  } catch {
    return { now: Number.NaN, peak: Number.NaN }
  }
}

const cores = availableParallelism()
const taskset = (() => {
  try {
    execFileSync("taskset", ["-V"], { stdio: "ignore" })
    return cores > 1
  } catch {
    return false
  }
})()

/** A prefix that keeps a command on the core of the measured server; empty where cores cannot be chosen. */
export const onServerCore: ReadonlyArray<string> = taskset ? ["taskset", "-c", "0"] : []

/**
 * Keeps this process, and everything that it starts (databases, load, receivers), off the measured server's core.
 * Returns a sentence that says whether it worked.
 */
export const leaveServerCore = (): string => {
  if (!taskset) return "Processes are not bound to cores: there is no taskset, or one core only."
  const others = cores === 2 ? "1" : `1-${cores - 1}`
  execFileSync("taskset", ["-a", "-p", "-c", others, String(process.pid)], { stdio: "ignore" })
  return `The measured process is bound to core 0; load, receivers and databases to ${cores === 2 ? "core 1" : `cores ${others}`}.`
}
