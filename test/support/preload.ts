/**
 * Loaded into a service under test before its own code (`node --import`), and obeys the parent process. Steps the wall
 * clock like an administrator or NTP: the monotonic clock and timers do not change.
 */
import { isMainThread } from "node:worker_threads"

export type PreloadRequest = { readonly stepClock: number } | "heap" | "cpu" | "stretch"

let ahead = 0
const RealDate = Date
const now = () => RealDate.now() + ahead
globalThis.Date = new Proxy(RealDate, {
  construct: (target, values, newTarget) =>
    Reflect.construct(target, values.length === 0 ? [now()] : values, newTarget) as Date,
  apply: () => new RealDate(now()).toString(),
  get: (target, property) => (property === "now" ? now : Reflect.get(target, property)),
})

/** The CPU time of this thread so far, in milliseconds. */
const cpuMillis = () => {
  const { system, user } = process.threadCpuUsage()
  return (system + user) / 1000
}

/** Watches how long this thread computes before the event loop turns again, from one question to the next. */
const stretch = { since: cpuMillis(), longest: 0 }
const turn = () => {
  const now = cpuMillis()
  stretch.longest = Math.max(stretch.longest, now - stretch.since)
  stretch.since = now
}
let turns: NodeJS.Timeout | undefined
const longestStretch = () => {
  turns ??= setInterval(turn, 1).unref()
  turn()
  const { longest } = stretch
  stretch.longest = 0
  return longest
}

const obey = (request: PreloadRequest) => {
  if (request === "cpu") return cpuMillis()
  if (request === "stretch") return longestStretch()
  if (request !== "heap") return (ahead += request.stepClock)
  globalThis.gc!()
  return process.memoryUsage().heapUsed
}

// The service's threads load this, too, and have no channel.
if (isMainThread) {
  process.on("message", (request: PreloadRequest) => process.send!(obey(request)))
  // The channel must not keep the process running.
  process.channel!.unref()
}
