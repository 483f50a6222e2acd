import { Effect } from "effect"
import { TooManyRequests } from "./Errors.ts"
import { monotonicMillis } from "./monotonicMillis.ts"
import { networkOf } from "./clientNetworks.ts"

/** The failures that a network may have in a minute. */
const maxFailuresPerMinute = 600

interface Window {
  readonly startedAt: number
  failures: number
}

const windowMillis = 60_000
const maxWindows = 10_000

/**
 * Counts failures per client network in windows of a minute. At most 10,000 windows are kept: one that has ended makes
 * room first, else the one with the fewest failures, so that a flood of addresses does not free the worst of them.
 *
 * @param error what a refusal says
 * @param limit failures of a network in a minute; with the next ones it is refused until that minute ends
 */
export const limitWrongCredentials = (error: string, limit = maxFailuresPerMinute) => {
  /** The oldest first. */
  const windows = new Map<string, Window>()
  /** The networks by their number of failures; in each the one that reached it first comes first. */
  const byFailures = Array.from({ length: limit + 1 }, () => new Set<string>())

  /** Fails with `TooManyRequests` while the address has used up its failures. Not before a key or token is compared. */
  const check = (address: string) =>
    Effect.flatMap(monotonicMillis, (now) => {
      const window = windows.get(networkOf(address))
      if (window === undefined || window.failures < limit) return Effect.void
      const left = window.startedAt + windowMillis - now
      if (left <= 0) return Effect.void
      return Effect.fail(new TooManyRequests({ error, retryAfterSeconds: Math.ceil(left / 1000) }))
    })

  const count = (network: string, window: Window, failures: number) => {
    byFailures[window.failures]!.delete(network)
    window.failures = failures
    byFailures[failures]!.add(network)
  }

  const forget = (network: string) => {
    const window = windows.get(network)
    if (window === undefined) return
    byFailures[window.failures]!.delete(network)
    windows.delete(network)
  }

  const removeWindow = (now: number) => {
    const [oldest, { startedAt }] = windows.entries().next().value!
    const fewest = byFailures.find(({ size }) => size > 0)!
    forget(now - startedAt >= windowMillis ? oldest : fewest.values().next().value!)
  }

  const record = (address: string) =>
    Effect.map(monotonicMillis, (now) => {
      const network = networkOf(address)
      const window = windows.get(network)
      if (window !== undefined && now - window.startedAt < windowMillis) {
        // Requests that were checked at the same time can be more than the limit.
        if (window.failures < limit) count(network, window, window.failures + 1)
        return
      }
      forget(network)
      if (windows.size >= maxWindows) removeWindow(now)
      windows.set(network, { startedAt: now, failures: 1 })
      byFailures[1]!.add(network)
    })

  /** Takes a failure of an address that has just failed, or fails with `TooManyRequests` when it has used them up. */
  const take = (address: string) => Effect.andThen(check(address), record(address))

  return { take }
}
