import { Effect } from "effect"
import { TooManyRequests } from "./Errors.ts"
import { monotonicMillis } from "./monotonicMillis.ts"

interface Window {
  startedAt: number
  failures: number
}

const windowMillis = 60_000
const maxWindows = 10_000

/**
 * Counts failures per client address in windows of a minute.
 *
 * @param limit how many failures an address has in a minute before it is refused for the rest of it
 */
export const make = (limit: number) => {
  const windows = new Map<string, Window>()

  /** Fails with `TooManyRequests` while the address has used up its failures. */
  const check = (address: string) =>
    Effect.flatMap(monotonicMillis, (now) => {
      const window = windows.get(address)
      if (window === undefined || window.failures < limit) return Effect.void
      const left = window.startedAt + windowMillis - now
      if (left <= 0) return Effect.void
      return Effect.fail(
        new TooManyRequests({
          error: "Too many keys that are not valid; wait, or send a credential of your own.",
          retryAfterSeconds: Math.ceil(left / 1000),
        }),
      )
    })

  const record = (address: string) =>
    Effect.map(monotonicMillis, (now) => {
      const window = windows.get(address)
      if (window !== undefined && now - window.startedAt < windowMillis) {
        window.failures++
        return
      }
      windows.delete(address)
      // The oldest windows come first: a flood of addresses forgets those, and memory stays bounded.
      if (windows.size >= maxWindows) windows.delete(windows.keys().next().value!)
      windows.set(address, { startedAt: now, failures: 1 })
    })

  return { check, record }
}
