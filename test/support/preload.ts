/**
 * Loaded into a service under test before its own code (`node --import`), and obeys the process that started it. The
 * wall clock is stepped as an administrator or NTP does it: the monotonic clock and timers know nothing of it.
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
// Only to be told something is no reason to live on.
process.channel!.unref()
