import { Effect, Option, Result } from "effect"
import { NetAddress } from "effect/net"
import { TooManyRequests } from "./Errors.ts"
import { monotonicMillis } from "./monotonicMillis.ts"

/** The failures that a network may have in a minute. */
const maxFailuresPerMinute = 600

interface Window {
  readonly startedAt: number
  failures: number
}

const windowMillis = 60_000
const maxWindows = 10_000
/** Longer than any address. A proxy may pass on text that is none. */
const maxNameLength = 64

/**
 * What an address counts as: an IPv6 address as its /64 network, of which one client has all addresses, an IPv4-mapped
 * one as its IPv4 address. Text that is no address counts as itself.
 */
export const networkOf = (address: string): string => {
  if (!address.includes(":")) return address.slice(0, maxNameLength)
  const parsed = NetAddress.ipv6FromString(address.replace(/%.*$/s, ""))
  if (Result.isFailure(parsed)) return address.slice(0, maxNameLength)
  return Option.match(NetAddress.fromIpv4Mapped(parsed.success), {
    onSome: NetAddress.formatIp,
    onNone: () =>
      `${NetAddress.ipv6ToSegments(parsed.success)
        .slice(0, 4)
        .map((part) => part.toString(16))
        .join(":")}::/64`,
  })
}

/**
 * Counts failures per client network in windows of a minute. At most 10,000 windows are kept: one that has ended makes
 * room first, else the one with the fewest failures, so that a flood of addresses does not free the worst of them.
 *
 * @param error what a refusal says
 * @param limit how many failures a network has in a minute before it is refused for the rest of it
 */
export const failureLimit = (error: string, limit = maxFailuresPerMinute) => {
  /** The oldest first. */
  const windows = new Map<string, Window>()
  /** The networks by their number of failures; in each the one that reached it first comes first. */
  const byFailures = Array.from({ length: limit + 1 }, () => new Set<string>())

  /** Fails with `TooManyRequests` while the address has used up its failures. */
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

  /** Whether any network has used up its failures, now or in a minute that has just ended. */
  const isAnyRefused = () => byFailures[limit]!.size > 0

  return { check, record, isAnyRefused }
}
