import { readFileSync } from "node:fs"
import type { Service } from "../support/process.ts"

const read =
  (line: RegExp) =>
  ({ pid }: Pick<Service, "pid">) =>
    process.platform === "linux" ? Number(line.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) / 1024 : 0

/** The memory of a process that is neither shared nor of a file, in MiB; 0 without /proc. */
export const memoryOf = read(/^RssAnon:\s+(\d+)/m)

/** The most memory of all kinds that a process has had so far, in MiB; 0 without /proc. */
export const peakMemoryOf = read(/^VmHWM:\s+(\d+)/m)
