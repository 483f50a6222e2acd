/**
 * Loaded into a service under test before its own code (`node --import`), and obeys the parent process. Steps the wall
 * clock like an administrator or NTP: the monotonic clock and timers do not change.
 */
export type PreloadRequest = { readonly stepClock: number } | "heap"

let ahead = 0
const RealDate = Date
const now = () => RealDate.now() + ahead
globalThis.Date = new Proxy(RealDate, {
  construct: (target, values, newTarget) =>
    Reflect.construct(target, values.length === 0 ? [now()] : values, newTarget) as Date,
  apply: () => new RealDate(now()).toString(),
  get: (target, property) => (property === "now" ? now : Reflect.get(target, property)),
})

const obey = (request: PreloadRequest) => {
  if (request !== "heap") return (ahead += request.stepClock)
  globalThis.gc!()
  return process.memoryUsage().heapUsed
}

process.on("message", (request: PreloadRequest) => process.send!(obey(request)))
// The channel must not keep the process running.
process.channel!.unref()
