import { readFileSync } from "node:fs"
import type { Service } from "../support/process.ts"

/** The memory of a process that is neither shared nor a file's, in MiB; 0 where there is no /proc. */
export const memoryOf = ({ pid }: Pick<Service, "pid">) => {
  if (process.platform !== "linux") return 0
  return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) / 1024
}
