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
/** An address; an IPv4-mapped one, which servers of both families report, as the IPv4 address that it stands for. */
export const parseIp = (text: string): NetAddress.IpAddress | undefined => {
  const address = Result.getOrUndefined(NetAddress.ipFromString(text))
  return address === undefined || NetAddress.isIpv4Address(address)
    ? address
    : Option.getOrElse(NetAddress.fromIpv4Mapped(address), () => address)
}

/** Longer than any address with a zone and a port. */
const maxAddressLength = 128
/** An address in brackets, or one of IPv4, each with or without a port; else the whole text. */
const written = /^(?:\[([^\]]*)\](?::\d{1,5})?|([\d.]+):\d{1,5}|(.*))$/s

/**
 * The address of a client as servers and proxies write it: its port, brackets and zone are dropped. `undefined` for
 * what is no address, such as `unknown`.
 */
export const clientAddressIn = (text: string): NetAddress.IpAddress | undefined => {
  // Most requests have no header of a proxy, and a fault of the parser costs as much as the rest of their address.
  if (text === "" || text.length > maxAddressLength) return undefined
  const [, bracketed, withPort, plain = ""] = written.exec(text.trim()) ?? []
  return parseIp((bracketed ?? withPort ?? plain).replace(/%.*$/s, ""))
}

/**
 * What an address counts as: an IPv6 address as its /64 network, of which one client has all addresses. Text that is no
 * address counts as itself.
 */
export const networkOf = (text: string): string => {
  const address = clientAddressIn(text)
  if (address === undefined) return text.slice(0, maxAddressLength)
  if (NetAddress.isIpv4Address(address)) return NetAddress.formatIp(address)
  const network = NetAddress.ipv6ToSegments(address).slice(0, 4)
  return `${network.map((part) => part.toString(16)).join(":")}::/64`
}

/**
 * Counts failures per client network in windows of a minute. At most 10,000 windows are kept: one that has ended makes
 * room first, else the one with the fewest failures, so that a flood of addresses does not free the worst of them.
 *
 * @param error what a refusal says
 * @param limit failures of a network in a minute; with the next ones it is refused until that minute ends
 */
export const failureLimit = (error: string, limit = maxFailuresPerMinute) => {
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

  return { check, take }
}
